"""The acts of a history, drawn from a seed before it runs, so that it replays exactly and can be shrunk."""

from __future__ import annotations

import random
from typing import TypedDict

import msgspec

from kilonova.sim.lab.cloud import DATABASE_CLOCK
from kilonova.sim.lab.outages import HANGS, REFUSES

KINDS = {
    "create": 6,
    "create_many": 2,
    "delete": 3,
    "remove": 2,
    "restore": 2,
    "migrate": 5,
    "resize": 5,
    "confirm_resize": 3,
    "revert_resize": 3,
    "evacuate": 4,
    "cancel": 3,
    "abandon": 3,
    "resume": 1,
    "stop": 3,
    "start": 3,
    "reboot": 1,
    "hard_reboot": 2,
    "rebuild": 3,
    "snapshot": 3,
    "retry": 4,
    "attach_volume": 4,
    "detach_volume": 3,
}
NEMESES = {
    "crash": 4,
    "stall": 3,
    "ambush": 6,
    "power": 2,
    "link": 2,
    "driver": 3,
    "broken": 2,
    "refusal": 5,
    "declare": 2,
    "deaf": 1,
    "disaster": 4,
    "outage": 2,
    "blackout": 3,
    "clock": 3,
    "gone": 3,
    "drain": 0,  # in separate histories: the draws of existing seeds stay as they are
    **dict.fromkeys(("silence", "rack", "flap", "partition", "fence", "disarm"), 0),  # the same: see WATCHED
}
# In histories with a failure watch.
WATCHED = {"drain": 6, "silence": 24, "rack": 5, "flap": 5, "partition": 3, "fence": 7, "disarm": 4, "crash": 8}
WORKS, FAILS, HANGS_ON, LIES = "works", "fails", "hangs", "lies"  # a fence command
VERBS = (
    *("ensure_disk", "send_disk", "ensure_defined", "ensure_power", "ensure_absent", "ensure_volume"),
    *("ensure_disk_size", "ensure_ephemeral"),
    *("ensure_snapshot", "read_snapshot"),
)
PORTS = (0, 0, 1, 1, 2)
ADDRESSES = (0, 2, 16, 16)
STALLS = (3.0, 20.0, 20.0, 70.0, 150.0)  # seconds; a lease lasts 15, a host is down after 60
BLACKOUTS = (75.0, 120.0, 200.0)  # seconds; all longer than a host may be silent
JUMPS = (-3600.0, -40.0, -0.5, 0.02, 5.0, 40.0, 3600.0)  # seconds that a clock is ahead afterwards
REFUSED = (
    *("stop", "stop", "start", "migrate", "resize", "revert_resize", "rebuild", "attach_volume", "detach_volume"),
    "restore",
)
BROKEN_FOR = (20.0, 120.0, 400.0)  # seconds; ten tries take about 240
DOORS = ("placement", "placement", "cell1", "cell2", "control", "control")
LYING = 3  # volumes to attach, if the history has volumes
# The volumes of a new server: to boot from one made for it, one made for its data (with a `!` they are deleted with the
# server), one of the existing ones, the shared one.
VOLUMES = ((), (), ("boot",), ("boot!",), ("boot!", "made"), ("made!",), ("1",), ("2", "made!"), ("shared",))
WIDE_EVERY, WIDE = 4, 2  # servers 2, 6, … request a disk that often fits nowhere: they move to cell0, and back
POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
EVACUATIONS = ("", "", "forced", "stopped", "shared", "local")  # a right or wrong statement about the storage
REBUILDS = ("", "", "first", "refused")  # with another image, the one it was created with, one that no host runs
DEATHS, RETURNS = ("off", "cut", "declared"), ("same", "same", "reinstalled", "new")  # of a host that is declared gone
DRAINS = ("migrate", "migrate", "stop")
DRAINED_FOR = (2.0, 30.0, 90.0, 300.0)  # seconds until it is cancelled, if it still runs, or the host is returned
MOVED_BEFORE = (0.0, 3.0, 15.0, 15.0)  # seconds before it dies servers are moved; 0: none is
RECLAIMED_AFTER = (0.0, 60.0, 400.0)  # seconds; 0: no delete can be taken back
CONFIRMED_AFTER = (0.0, 0.0, 90.0)  # seconds; 0: no move is confirmed automatically
SILENT_BY, SILENT_FOR = ("power", "link", "bus"), (40.0, 110.0, 150.0, 200.0, 400.0)  # a host is fenced after 120
FLAPS_FOR = (30.0, 70.0, 110.0, 140.0)  # seconds
FENCES, MENDED_AFTER = (FAILS, HANGS_ON, LIES), (100.0, 250.0, 600.0)  # a fence command, and when it works again
DISARMED_FOR = (60.0, 200.0, 500.0)  # seconds


class Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event, `after` seconds after the one before."""

    after: float
    do: str
    server: int = 0
    who: str = ""
    number: int = 0
    option: str = ""
    seconds: float = 0.0
    again: tuple[float, ...] = ()  # repeated with the same Idempotency-Key after this time
    ports: int = 0  # a new server has made for it
    given: bool = False  # and whether it is given the one that lies there for it
    volumes: tuple[str, ...] = ()
    group: str = ""  # a new server joins


class ActTarget(TypedDict, total=False):
    """The target and the manner of an act; fields of the act."""

    who: str
    number: int
    option: str
    seconds: float


class RequestedServer(TypedDict, total=False):
    """Fields of an act about new servers or one of their volumes."""

    ports: int
    given: bool
    volumes: tuple[str, ...]
    group: str
    number: int


class WatchShape(msgspec.Struct, frozen=True, kw_only=True):
    """A failure watch that acts, and its fence command."""

    storm_hosts: int
    storm_percent: float
    storm_window: float
    fence_timeout: float
    fence_seconds: float  # that the command takes at most, where it ends
    repaired_after: float  # seconds after a host was switched off


class History(msgspec.Struct, frozen=True, kw_only=True):
    seed: str
    hosts: int
    conductors: int
    shared: bool
    acts: list[Act]
    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    failed: float = 0.0
    unknown: float = 0.0
    addresses: int = 0  # of the ports; without any there is no network
    cells: int = 1
    volumes: bool = False
    reclaimed_after: float = 0.0
    confirmed_after: float = 0.0
    watch: WatchShape | None = None


def draw(seed: str, length: int = 40, *, gone: int = NEMESES["gone"], watched: bool = False) -> History:
    """Draw the history of a seed. `gone`: how often a host is declared gone, as a weight among the NEMESES. `watched`:
    with a failure watch, on more hosts."""
    source = random.Random(f"{seed}:history")
    hosts, conductors, cells = source.randint(2, 5), source.choice((1, 2, 2)), source.choice((1, 2))
    hosts = max(hosts, 2 * cells)  # a move stays in its cell
    hosts += source.randint(3, 6) if watched else 0
    roles = ["api", *(f"conductor{n + 1}" for n in range(conductors)), *(f"host{n + 1}" for n in range(hosts))]
    servers = source.randint(2, 8) + (4 if watched else 0)
    rough = source.choice((0.0, 0.0, 0.02, 0.08))
    luck = source.choice((0.0, 0.0, 0.02))
    nemesis, kinds = source.choice((0.0, 0.2, 0.4)), {**NEMESES, "gone": gone, **(WATCHED if watched else {})}
    first = [Act(after=0.5, do="create", server=number) for number in range(min(servers, length // 8))]
    nemesis = max(nemesis, 0.3) if watched else nemesis
    others = [_act(source, roles, servers, cells, nemesis, kinds) for _ in range(length - len(first))]
    acts = [_with_request(source, act) for act in (*first, *others)]
    return History(
        seed=seed,
        hosts=hosts,
        conductors=conductors,
        shared=source.random() < 0.3,
        acts=acts,
        lost=rough,
        late=rough,
        doubled=rough,
        failed=luck,
        unknown=luck,
        addresses=source.choice(ADDRESSES),
        cells=cells,
        volumes=source.random() < 0.6,
        reclaimed_after=source.choice(RECLAIMED_AFTER),
        confirmed_after=source.choice(CONFIRMED_AFTER),
        watch=_watch_shape(source) if watched else None,
    )


def _watch_shape(source: random.Random) -> WatchShape:
    timeout = source.choice((20.0, 60.0))
    return WatchShape(
        storm_hosts=source.choice((1, 2, 3)),
        storm_percent=source.choice((10.0, 40.0, 60.0)),
        storm_window=source.choice((200.0, 600.0)),
        fence_timeout=timeout,
        fence_seconds=timeout * source.choice((0.1, 0.9)),
        repaired_after=source.choice((30.0, 120.0, 400.0)),
    )


def _with_request(source: random.Random, act: Act) -> Act:
    """Add the requests of new servers and the volume, if the act needs them."""
    if act.do not in ("create", "create_many", "attach_volume", "detach_volume", "ambush", "refusal"):
        return act
    requested: RequestedServer = {
        "ports": source.choice(PORTS),
        "given": source.random() < 0.2,
        "volumes": source.choice(VOLUMES),
        "group": source.choice(POLICIES) if source.random() < 0.4 else "",
    }
    if act.do in ("attach_volume", "detach_volume", "refusal"):
        requested = {"volumes": (source.choice(("1", "2", "2!", "3", "shared")),)}
    elif act.do == "create_many":
        requested["number"] = source.choice((2, 2, 3))
    return msgspec.structs.replace(act, **requested)


def _act(
    source: random.Random, roles: list[str], servers: int, cells: int, nemesis: float, nemeses: dict[str, int]
) -> Act:
    """A request, or with the probability `nemesis` one of the nemeses."""
    after = source.choice((0.0, 0.05, 0.5, 2.0, 10.0, 70.0))
    if source.random() >= nemesis:
        do = source.choices(list(KINDS), list(KINDS.values()))[0]
        again = tuple(source.choices((0.0, 0.1, 2.0, 40.0), k=source.choice((0, 0, 0, 1, 2))))
        server = source.randrange(servers)
        if do == "retry" and server % 3:  # the others come to cell0 only when every host failed to build them
            server = server // WIDE_EVERY * WIDE_EVERY + WIDE
        return Act(after=after, do=do, server=server, again=again, **_said(source, do, roles))
    do = source.choices(list(nemeses), list(nemeses.values()))[0]
    if do == "ambush":
        kinds = source.choices(list(KINDS), list(KINDS.values()))[0], source.choice(("delete", *KINDS))
        scenario, server = f"{kinds[0]} {kinds[1]} {source.choice(DOORS)}", source.randrange(servers)
        number, seconds = source.randint(1, 12), source.choice(STALLS)
        return Act(after=after, do=do, server=server, option=scenario, number=number, seconds=seconds)
    if do == "refusal":
        scenario = f"{source.choice(REFUSED)} {source.choice(('*', 'ensure_power', 'ensure_power', 'ensure_defined'))}"
        seconds = source.choice((2.0, 10.0, 40.0, 90.0))
        return Act(after=after, do=do, server=source.randrange(servers), option=scenario, seconds=seconds)
    return Act(after=after, do=do, **_strike(source, do, roles, cells))


def _said(source: random.Random, do: str, roles: list[str]) -> ActTarget:
    """Return what a request names besides its server."""
    if do == "evacuate":
        return {"who": source.choice(("", *_hosts(roles))), "option": source.choice(EVACUATIONS)}
    return {"option": source.choice(REBUILDS)} if do == "rebuild" else {}


def _hosts(roles: list[str]) -> list[str]:
    return [role for role in roles if role.startswith("host")]


def _strike(source: random.Random, do: str, roles: list[str], cells: int) -> ActTarget:
    """Draw the target and the manner of a disaster."""
    hosts = _hosts(roles)
    if do in WATCHED and not NEMESES[do] and do != "drain":
        return _strike_watched(source, do, hosts)
    if do in ("crash", "stall"):
        seconds = source.choice(STALLS) if do == "stall" else 0.0
        return {"who": source.choice(roles), "number": source.randint(1, 60), "seconds": seconds}
    if do == "drain":
        mode, seconds = source.choice(DRAINS), source.choice(DRAINED_FOR)
        return {"who": source.choice(hosts), "number": source.randint(0, 1), "option": mode, "seconds": seconds}
    if do == "driver":
        how = source.choice(("error", "error", "crash"))
        return {"who": source.choice(hosts), "option": f"{source.choice(VERBS)}:{how}"}
    if do == "broken":
        how = source.choice(("error", "refuse", "refuse"))
        seconds = source.choice(BROKEN_FOR)
        return {"who": source.choice(hosts), "option": f"{source.choice(VERBS)}:{how}", "seconds": seconds}
    if do == "disaster":
        mode = source.choice(("power", "power", "link", "declare", "whole"))
        return {"who": source.choice(hosts), "option": mode, "number": source.randint(0, 2)}
    if do == "gone":
        mode = f"{source.choice(DEATHS)} {source.choice(RETURNS)}"
        seconds, number = source.choice(MOVED_BEFORE), source.randint(0, 2)
        return {"who": source.choice(hosts), "option": mode, "number": number, "seconds": seconds}
    cell_names = [f"cell{n + 1}" for n in range(cells)]
    if do == "outage":
        database, how = source.choice(("cell0", *cell_names)), source.choice((REFUSES, HANGS))
        return {"who": database, "option": how, "seconds": source.choice(STALLS)}
    if do == "blackout":
        database = source.choice(("control", "placement", *cell_names, *cell_names))
        dies = source.choice(("", "", *hosts))
        return {
            "who": database,
            "option": f"{source.choice((REFUSES, HANGS))} {dies}",
            "seconds": source.choice(BLACKOUTS),
        }
    if do == "clock":
        return {"who": source.choice((*roles, DATABASE_CLOCK)), "seconds": source.choice(JUMPS)}
    if do == "deaf":
        return {"who": source.choice(roles)}
    return {"who": source.choice(hosts), "option": source.choice(("off", "on"))}


def _strike_watched(source: random.Random, do: str, hosts: list[str]) -> ActTarget:
    host, how = source.choice(hosts), source.choice(SILENT_BY)
    if do == "silence":
        return {"who": host, "option": how, "seconds": source.choice(SILENT_FOR)}
    if do == "rack":
        return {"who": host, "option": how, "number": source.randint(2, 4), "seconds": source.choice(SILENT_FOR)}
    if do == "flap":
        return {"who": host, "option": how, "number": source.randint(2, 5), "seconds": source.choice(FLAPS_FOR)}
    if do == "partition":
        return {"number": source.randint(0, 1), "seconds": source.choice(SILENT_FOR)}
    if do == "fence":
        return {"option": source.choice(FENCES), "seconds": source.choice(MENDED_AFTER)}
    return {"number": source.randint(0, 1), "seconds": source.choice(DISARMED_FOR)}
