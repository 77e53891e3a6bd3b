"""What a history is made of: acts, drawn from a seed before it runs, so that it replays exactly and can be shrunk."""

from __future__ import annotations

import random

import msgspec

KINDS = {
    "create": 6,
    "delete": 3,
    "migrate": 5,
    "confirm_resize": 3,
    "revert_resize": 3,
    "evacuate": 4,
    "cancel": 3,
    "stop": 3,
    "start": 3,
    "reboot": 1,
    "hard_reboot": 2,
    "rebuild": 3,
}
NEMESES = {
    "crash": 4,
    "stall": 3,
    "ambush": 6,
    "power": 2,
    "link": 2,
    "driver": 3,
    "declare": 2,
    "deaf": 1,
    "disaster": 4,
}
VERBS = ("ensure_disk", "send_disk", "ensure_defined", "ensure_power", "ensure_absent")
PORTS = (0, 0, 1, 1, 2)
ADDRESSES = (0, 2, 16, 16)
STALLS = (3.0, 20.0, 20.0, 70.0, 150.0)  # seconds; a lease lasts 15, a host is down after 60
DOORS = ("placement", "placement", "cell1", "control")


class Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happens, `after` seconds after the one before."""

    after: float
    do: str
    server: int = 0
    who: str = ""
    number: int = 0
    word: str = ""
    seconds: float = 0.0
    again: tuple[float, ...] = ()  # asked again with the same Idempotency-Key so much later
    ports: int = 0  # a new server has made for it
    given: bool = False  # and whether it is given the one that lies there for it


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
    addresses: int = 0  # for the ports that are made; without any there is no network


def draw(seed: str, length: int = 40) -> History:
    """The history of a seed."""
    source = random.Random(f"{seed}:history")
    hosts, conductors = source.randint(2, 5), source.choice((1, 2, 2))
    roles = ["api", *(f"conductor{n + 1}" for n in range(conductors)), *(f"host{n + 1}" for n in range(hosts))]
    servers = source.randint(2, 8)
    rough = source.choice((0.0, 0.0, 0.02, 0.08))
    luck = source.choice((0.0, 0.0, 0.02))
    nemesis = source.choice((0.0, 0.2, 0.4))
    acts = [_with_ports(source, _act(source, roles, servers, nemesis)) for _ in range(length)]
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
    )


def _with_ports(source: random.Random, act: Act) -> Act:
    """What it wants of the network, should it come to create a server."""
    if act.do not in ("create", "ambush"):
        return act
    return msgspec.structs.replace(act, ports=source.choice(PORTS), given=source.random() < 0.2)


def _act(source: random.Random, roles: list[str], servers: int, nemesis: float) -> Act:
    after = source.choice((0.0, 0.05, 0.5, 2.0, 10.0, 70.0))
    hosts = [role for role in roles if role.startswith("host")]
    if source.random() >= nemesis:
        do = source.choices(list(KINDS), list(KINDS.values()))[0]
        again = tuple(source.choices((0.0, 0.1, 2.0, 40.0), k=source.choice((0, 0, 0, 1, 2))))
        return Act(after=after, do=do, server=source.randrange(servers), again=again)
    do = source.choices(list(NEMESES), list(NEMESES.values()))[0]
    if do in ("crash", "stall"):
        seconds = source.choice(STALLS) if do == "stall" else 0.0
        return Act(after=after, do=do, who=source.choice(roles), number=source.randint(1, 60), seconds=seconds)
    if do == "ambush":
        kinds = source.choices(list(KINDS), list(KINDS.values()))[0], source.choice(("delete", *KINDS))
        word, server = f"{kinds[0]} {kinds[1]} {source.choice(DOORS)}", source.randrange(servers)
        number, seconds = source.randint(1, 12), source.choice(STALLS)
        return Act(after=after, do=do, server=server, word=word, number=number, seconds=seconds)
    if do == "driver":
        how = source.choice(("error", "error", "crash"))
        return Act(after=after, do=do, who=source.choice(hosts), word=f"{source.choice(VERBS)}:{how}")
    if do == "disaster":
        word = source.choice(("power", "power", "link", "declare", "whole"))
        return Act(after=after, do=do, who=source.choice(hosts), word=word)
    word = source.choice(("off", "on")) if do != "deaf" else ""
    return Act(after=after, do=do, who=source.choice(hosts if do != "deaf" else roles), word=word)
