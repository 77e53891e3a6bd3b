"""The operations that are crashed at every point (crashes.py), and what must have become of them in the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import KilonovaError
from kilonova.engine.abandon import abandon
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.limits import Limits
from kilonova.operations import hosts
from kilonova.operations.declare_gone import declare_gone
from kilonova.operations.retry import rebuild_unplaced
from kilonova.operations.submit import NewServer, NewServers, create, create_many, submit
from kilonova.sim.cloud import CloudShape, SimCloud
from kilonova.sim.crashes import Scenario
from kilonova.sim.flavors import BOARD, OFFER, PINNED, SMALL, VCPUS
from kilonova.sim.records import Records, read_records

SPARING = Limits(flush_seconds=5.0)  # fewer heartbeats written: thousands of runs
PLAIN = CloudShape(limits=SPARING)
TWO_CELLS = CloudShape(hosts=4, cells=2, limits=SPARING)
NETWORKED = CloudShape(addresses=4, ports=1, limits=SPARING)
PINNING = CloudShape(vcpus=VCPUS, board=BOARD, offer=OFFER, limits=SPARING)
STORED = CloudShape(volumes=2, limits=SPARING)
EVERYTHING = CloudShape(addresses=4, ports=1, volumes=2, rare_volumes=True, groups=("anti-affinity",), limits=SPARING)
SERVER = "5e7e0000-0000-4000-8000-000000000001"
MANY = 3


def created(cloud: SimCloud) -> None:
    cloud.do(lambda engine: create(engine, _new(cloud), cloud.cause()))
    cloud.loop.run_for(10.0)


def _new(cloud: SimCloud, number: int = 1) -> NewServer:
    """With all that its cloud has: ports, one of its own and one that it is given; CPUs of its own; a volume to boot
    from, which is made for it and goes with it, and one that lies there; a group."""
    group = cloud.shape.groups[0] if cloud.shape.groups else None
    return NewServer(
        id=f"{SERVER[:-1]}{number}",
        name=f"a{number}",
        flavor=PINNED if cloud.shape.offer.dedicated else SMALL,
        image="img",
        networks=cloud.laid.wanted(1, cloud.laid.ports) if cloud.laid.network else [],
        volumes=[_boot(cloud), {"volume_id": cloud.stock.volumes[0], "device": "/dev/vdb"}] if _boots(cloud) else [],
        group=group,
        details=Details(scheduler_hints={"group": [group]} if group else {}),
    )


def _one_of_many(cloud: SimCloud, number: int) -> NewServer:
    """As above; what there is only once, none of them gets."""
    data = {"size": 1, "device": "/dev/vdb", "delete_on_termination": True}
    fields: dict[str, Any] = {
        "networks": cloud.laid.wanted(1) if cloud.laid.network else [],
        "volumes": [_boot(cloud), data] if _boots(cloud) else [],
    }
    new: NewServer = msgspec.structs.replace(_new(cloud, number), **fields)
    return new


def _boots(cloud: SimCloud) -> bool:
    return bool(cloud.stock.snapshot)


def _boot(cloud: SimCloud) -> dict[str, Any]:
    return {
        "snapshot_id": cloud.stock.snapshot,
        "is_root": True,
        "device": "/dev/vda",
        "delete_on_termination": True,
    }


def asked(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    def act(cloud: SimCloud) -> None:
        _ask(cloud, kind, params)
        cloud.loop.run_for(20.0)

    return act


def asking(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    return lambda cloud: _ask(cloud, kind, params)


def creating(cloud: SimCloud) -> None:
    cloud.ask(lambda engine: create(engine, _new(cloud), cloud.cause())).add_done_callback(_no_matter)


def cell_goes_away(cloud: SimCloud) -> None:
    """The only one, for half a minute."""
    cloud.outages.begin("cell1")
    cloud.loop.call_later(30.0, cloud.outages.end, "cell1")
    cloud.loop.run_for(2.0)


def creating_many(cloud: SimCloud) -> None:
    new = [_one_of_many(cloud, number) for number in range(1, MANY + 1)]
    wanted = NewServers(flavor=SMALL, least=MANY, most=MANY, make=lambda count: new)
    cloud.ask(lambda engine: create_many(engine, wanted, cloud.cause())).add_done_callback(_no_matter)


def attached(cloud: SimCloud) -> None:
    _attach(cloud, 0)
    cloud.loop.run_for(20.0)


def attaching(cloud: SimCloud) -> None:
    _attach(cloud, 1)


def _attach(cloud: SimCloud, number: int) -> None:
    volume = cloud.stock.volumes[number]
    _ask(cloud, "attach_volume", {"id": f"bdm{number}", "volume_id": volume, "delete_on_termination": bool(number)})


def detaching(cloud: SimCloud) -> None:
    _ask(cloud, "detach_volume", {"volume_id": cloud.stock.volumes[0]})


def buried(cloud: SimCloud) -> None:
    """No host took it; now they would."""
    for word in (hosts.disable, hosts.enable):
        for host in cloud.hardware.hosts():
            cloud.do(partial(_say, word, host))
        if word is hosts.disable:
            created(cloud)
    cloud.loop.run_for(5.0)


async def _say(word: Callable[[Engine, str], Awaitable[Any]], host: str, engine: Engine) -> None:
    await word(engine, host)


def retrying(cloud: SimCloud) -> None:
    ask = Ask(kind="rebuild", server_id=SERVER, cause=cloud.cause())
    cloud.ask(lambda engine: rebuild_unplaced(engine, ask)).add_done_callback(_no_matter)


def retrying_and_deleting(cloud: SimCloud) -> None:
    retrying(cloud)
    _ask(cloud, "delete", {})


def refused(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    """Its host refuses to switch the guest, and to switch it back: the operation waits for an operator (law 17)."""

    def act(cloud: SimCloud) -> None:
        for host in cloud.hardware.hosts():
            cloud.hardware.fail(host, "ensure_power", 1000, "refuse")
        asked(kind, **params)(cloud)

    return act


def abandoning(cloud: SimCloud) -> None:
    waiting = next(row for row in read_records(cloud).table("operations") if row["state"] == "waiting")
    cause = cloud.cause()

    async def ask(engine: Engine) -> None:
        await abandon(engine, engine.world.db.cell(waiting["database"]), waiting["id"], cause, "it will never work")

    cloud.ask(ask).add_done_callback(_no_matter)


def host_dies(cloud: SimCloud) -> None:
    """The server's host loses power and everybody has noticed."""
    server = read_records(cloud).server(SERVER)
    assert server is not None
    cloud.hardware.switch_power(server["host"], False)
    cloud.loop.run_for(100.0)


def declaring_gone(cloud: SimCloud) -> None:
    """The host that lost its power: the server is on it, resized, or was evacuated from it."""
    host = next(name for name in cloud.hardware.hosts() if not cloud.hardware.host(name).switches.power)
    cause = cloud.cause()

    async def ask(engine: Engine) -> None:
        journal, _ = await hosts.find_host(engine, host)
        await declare_gone(engine, journal, host, "it burnt down", cause)

    cloud.ask(ask).add_done_callback(_no_matter)


def _ask(cloud: SimCloud, kind: str, params: dict[str, Any]) -> None:
    ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=params)
    cloud.ask(lambda engine: submit(engine, ask)).add_done_callback(_no_matter)


def _no_matter(answer: Any) -> None:
    """The api may die before it answers, or refuse: the records decide."""
    if not answer.cancelled() and answer.exception() is not None and not isinstance(answer.exception(), KilonovaError):
        raise answer.exception()


def _one_server(*vm_states: str) -> Callable[[Records], Iterator[str]]:
    def outcome(records: Records) -> Iterator[str]:
        server = records.server(SERVER)
        if server is None or server["vm_state"] not in vm_states:
            yield f"the server is {server and server['vm_state']}, expected {' or '.join(vm_states)}"

    return outcome


def _created_or_never(records: Records) -> Iterator[str]:
    server = records.server(SERVER)
    if server is None and records.table("server_mappings"):
        yield "the create was accepted but the server is gone"
    if server is not None and server["vm_state"] != "active":
        yield f"the server is {server['vm_state']}"


def _whole_or_never(records: Records) -> Iterator[str]:
    yield from _created_or_never(records)
    yield from _has_volumes(records)


def _whole_or_gone(records: Records) -> Iterator[str]:
    """What went with it is gone or going; what was only lent to it is there."""
    yield from _one_server("active", "deleted")(records)
    yield from _has_volumes(records)
    if not any(row["name"] == "volume1" for row in records.table("volumes")):
        yield "volume1 went with the server"


def _whole_or_buried(records: Records) -> Iterator[str]:
    yield from _one_server("active", "error")(records)
    yield from _has_volumes(records)


def _whole_or_any(records: Records) -> Iterator[str]:
    """It may also be gone without a trace."""
    if records.server(SERVER) is not None:
        yield from _one_server("active", "error", "deleted")(records)
    yield from _has_volumes(records)


def _all_whole_or_none(records: Records) -> Iterator[str]:
    yield from _all_or_none(records)
    yield from _has_volumes(records)


def _has_volumes(records: Records) -> Iterator[str]:
    """To boot from and for data, each server that runs."""
    for server in records.table("servers"):
        held = [one for one in records.table("volume_attachments") if one["server_id"] == server["id"]]
        if len(held) != (2 if server["vm_state"] == "active" else 0):
            yield f"server {server['name']} is {server['vm_state']} and has {len(held)} volumes"


def _all_or_none(records: Records) -> Iterator[str]:
    states = [server["vm_state"] for server in records.table("servers")]
    if states not in ([], ["active"] * MANY):
        yield f"the servers are {states}"
    if not states and records.table("server_mappings"):
        yield "the create was accepted but the servers are gone"


def _failed(records: Records) -> Iterator[str]:
    return (f"the server is {s['vm_state']}" for s in records.table("servers") if s["vm_state"] != "error")


SCENARIOS = [
    Scenario("create", [], creating, _created_or_never, NETWORKED),
    Scenario("create_many", [], creating_many, _all_or_none, PLAIN),
    Scenario("create_while_its_cell_is_away", [cell_goes_away], creating, _created_or_never, PLAIN),
    Scenario("delete", [created], asking("delete"), _one_server("active", "deleted"), NETWORKED),
    Scenario("create_with_everything", [], creating, _whole_or_never, EVERYTHING),
    Scenario("create_many_with_everything", [], creating_many, _all_whole_or_none, EVERYTHING),
    Scenario("delete_with_everything", [created], asking("delete"), _whole_or_gone, EVERYTHING),
    Scenario("migrate", [created], asking("migrate"), _one_server("active", "resized"), NETWORKED),
    Scenario("confirm", [created, asked("migrate")], asking("confirm_resize"), _one_server("active", "resized"), PLAIN),
    Scenario(
        "revert", [created, asked("migrate")], asking("revert_resize"), _one_server("active", "resized"), NETWORKED
    ),
    Scenario("stop", [created], asking("stop"), _one_server("active", "stopped"), PLAIN),
    Scenario("start", [created, asked("stop")], asking("start"), _one_server("active", "stopped"), PLAIN),
    Scenario("soft_delete", [created], asking("soft_delete"), _one_server("active", "soft-delete"), PLAIN),
    Scenario(
        "restore", [created, asked("soft_delete")], asking("restore"), _one_server("active", "soft-delete"), PLAIN
    ),
    Scenario("reboot", [created], asking("reboot"), _one_server("active"), PLAIN),
    Scenario("hard_reboot", [created, asked("stop")], asking("hard_reboot"), _one_server("active", "stopped"), PLAIN),
    Scenario("rebuild", [created], asking("rebuild", image="another"), _one_server("active"), PLAIN),
    Scenario(
        "rebuild_volume",
        [created],
        asking("rebuild_volume", image="another", reimage=True),
        _one_server("active"),
        EVERYTHING,
    ),
    Scenario("rebuild_in_cell0", [buried], retrying, _whole_or_buried, EVERYTHING),
    Scenario("rebuild_in_cell0_and_delete", [buried], retrying_and_deleting, _whole_or_any, EVERYTHING),
    Scenario("evacuate", [created, host_dies], asking("evacuate"), _one_server("active"), NETWORKED),
    Scenario(
        "evacuate_shared",
        [created, host_dies],
        asking("evacuate"),
        _one_server("active"),
        CloudShape(shared_storage="pool", limits=SPARING),
    ),
    Scenario("host_gone", [created, host_dies, asked("evacuate")], declaring_gone, _one_server("active"), NETWORKED),
    Scenario(
        "host_gone_resized",
        [created, asked("migrate"), host_dies],
        declaring_gone,
        _one_server("active", "resized"),
        NETWORKED,
    ),
    Scenario("create_pinned", [], creating, _created_or_never, PINNING),
    Scenario("migrate_pinned", [created], asking("migrate"), _one_server("active", "resized"), PINNING),
    Scenario("rebuild_pinned", [created], asking("rebuild", image="another"), _one_server("active"), PINNING),
    Scenario("delete_pinned", [created], asking("delete"), _one_server("active", "deleted"), PINNING),
    Scenario("create_among_cells", [], creating, _created_or_never, TWO_CELLS),
    Scenario("migrate_among_cells", [created], asking("migrate"), _one_server("active", "resized"), TWO_CELLS),
    Scenario("attach_volume", [created, attached], attaching, _one_server("active"), STORED),
    Scenario("detach_volume", [created, attached], detaching, _one_server("active"), STORED),
    Scenario("migrate_with_volumes", [created, attached], asking("migrate"), _one_server("active", "resized"), STORED),
    Scenario(
        "revert_with_volumes",
        [created, attached, asked("migrate")],
        asking("revert_resize"),
        _one_server("active", "resized"),
        STORED,
    ),
    Scenario(
        "evacuate_with_volumes", [created, attached, host_dies], asking("evacuate"), _one_server("active"), STORED
    ),
    Scenario(
        "abandon_a_rebuild", [created, refused("rebuild", image="another")], abandoning, _one_server("active"), PLAIN
    ),
    Scenario("abandon_a_migration", [created, refused("migrate")], abandoning, _one_server("active"), NETWORKED),
    Scenario("no_room", [], creating, _failed, CloudShape(vcpus=1, memory_mb=512, limits=SPARING)),
    Scenario("no_address", [], creating, _failed, CloudShape(addresses=1, ports=1, limits=SPARING)),
]
