"""A crash at every point of an operation. The points are counted by the event loop: each callback that a simulated
process runs is one; before it, that process (or all of them) dies without running another line, and starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kilonova.domain.errors import KilonovaError
from kilonova.engine.accept import Ask
from kilonova.engine.limits import Limits
from kilonova.operations.submit import NewServer, NewServers, create, create_many, submit
from kilonova.sim.cloud import CloudShape, SimCloud
from kilonova.sim.flavors import BOARD, OFFER, PINNED, SMALL, VCPUS
from kilonova.sim.invariants import violations
from kilonova.sim.loop import Process
from kilonova.sim.records import Records, is_idle, read_records
from kilonova.sim.rest import come_to_rest

SPARING = Limits(flush_seconds=5.0)  # fewer heartbeats written: thousands of runs
PLAIN = CloudShape(limits=SPARING)
TWO_CELLS = CloudShape(hosts=4, cells=2, limits=SPARING)
NETWORKED = CloudShape(addresses=4, ports=1, limits=SPARING)
PINNING = CloudShape(vcpus=VCPUS, board=BOARD, offer=OFFER, limits=SPARING)
STORED = CloudShape(volumes=2, limits=SPARING)
SERVER = "5e7e0000-0000-4000-8000-000000000001"
MANY = 3


@dataclass
class Scenario:
    """What is there before, what is asked, and what must be true however it was interrupted."""

    name: str
    before: list[Callable[[SimCloud], None]]
    act: Callable[[SimCloud], None]
    outcome: Callable[[Records], Iterable[str]] = lambda records: ()
    shape: CloudShape = field(default_factory=lambda: NETWORKED)


@dataclass
class Crash:
    """One interrupted run."""

    point: int
    who: str
    found: list[str]


OpenDatabases = Callable[[], Any]


def count_points(scenario: Scenario, databases: OpenDatabases | None = None) -> int:
    """How many points there are between the request and rest."""
    cloud = _prepared(scenario, databases)
    first = cloud.loop.points
    scenario.act(cloud)
    last = _until_ended(cloud)
    cloud.close()
    return last - first


def crash_at(scenario: Scenario, offset: int, *, everyone: bool, databases: OpenDatabases | None = None) -> Crash:
    """Run it, crash at the given point, let it come to rest, and look."""
    cloud = _prepared(scenario, databases)
    crashed = Crash(offset, "nobody", [])

    def strike(process: Process) -> None:
        crashed.who = "everyone" if everyone else process.name
        for name in [*cloud.roles] if everyone else [process.name]:
            cloud.crash(name)

    cloud.loop.crash_when(cloud.loop.points + offset, strike)
    scenario.act(cloud)
    _until_ended(cloud)
    records = come_to_rest(cloud)
    crashed.found = [*violations(records, cloud, at_rest=True), *scenario.outcome(records)]
    cloud.close()
    return crashed


def matrix(
    scenario: Scenario, offsets: Iterable[int], *, everyone: bool, databases: OpenDatabases | None = None
) -> Iterator[Crash]:
    for offset in offsets:
        yield crash_at(scenario, offset, everyone=everyone, databases=databases)


def _prepared(scenario: Scenario, databases: OpenDatabases | None) -> SimCloud:
    opened = databases() if databases is not None else None
    cloud = SimCloud(scenario.shape, seed=scenario.name, open_databases=opened)
    cloud.start_all()
    cloud.loop.run_for(15.0)
    for step in scenario.before:
        step(cloud)
    return cloud


def _until_ended(cloud: SimCloud) -> int:
    """Virtual time goes on until no operation is under way; returns the points by then."""
    for _ in range(40):
        cloud.loop.run_for(1.0)
        points = cloud.loop.points
        if is_idle(cloud):
            break
    return points


# -- what scenarios are made of -------------------------------------------------------------------------------------


def created(cloud: SimCloud) -> None:
    cloud.do(lambda engine: create(engine, _new(cloud), cloud.cause()))
    cloud.loop.run_for(10.0)


def creating_with_volume(cloud: SimCloud) -> None:
    volumes = [{"volume_id": cloud.stock.volumes[0], "device": "/dev/vdb"}]
    new = msgspec.structs.replace(_new(cloud), volumes=volumes)
    cloud.ask(lambda engine: create(engine, new, cloud.cause())).add_done_callback(_no_matter)


def _new(cloud: SimCloud) -> NewServer:
    """Where there is a network: with a port of its own and one that it is given. Where CPUs may be pinned: pinned."""
    networks = cloud.laid.wanted(1, cloud.laid.ports) if cloud.laid.network else []
    flavor = PINNED if cloud.shape.offer.dedicated else SMALL
    return NewServer(id=SERVER, name="a", flavor=flavor, image="img", networks=networks)


def asked(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    def act(cloud: SimCloud) -> None:
        _ask(cloud, kind, params)
        cloud.loop.run_for(20.0)

    return act


def asking(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    return lambda cloud: _ask(cloud, kind, params)


def creating(cloud: SimCloud) -> None:
    cloud.ask(lambda engine: create(engine, _new(cloud), cloud.cause())).add_done_callback(_no_matter)


def creating_many(cloud: SimCloud) -> None:
    new = [NewServer(id=f"{SERVER[:-1]}{n}", name=f"a{n}", flavor=SMALL, image="img") for n in range(MANY)]
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


def host_dies(cloud: SimCloud) -> None:
    """The server's host loses power and everybody has noticed."""
    server = read_records(cloud).server(SERVER)
    assert server is not None
    cloud.hardware.switch_power(server["host"], False)
    cloud.loop.run_for(100.0)


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


def _all_or_none(records: Records) -> Iterator[str]:
    states = [server["vm_state"] for server in records.table("servers")]
    if states not in ([], ["active"] * MANY):
        yield f"the servers are {states}"
    if not states and records.table("server_mappings"):
        yield "the create was accepted but the servers are gone"


def _failed(records: Records) -> Iterator[str]:
    return (f"the server is {s['vm_state']}" for s in records.table("servers") if s["vm_state"] != "error")


SCENARIOS = [
    Scenario("create", [], creating, _created_or_never),
    Scenario("create_many", [], creating_many, _all_or_none),
    Scenario("delete", [created], asking("delete"), _one_server("active", "deleted")),
    Scenario("migrate", [created], asking("migrate"), _one_server("active", "resized")),
    Scenario("confirm", [created, asked("migrate")], asking("confirm_resize"), _one_server("active", "resized"), PLAIN),
    Scenario("revert", [created, asked("migrate")], asking("revert_resize"), _one_server("active", "resized")),
    Scenario("stop", [created], asking("stop"), _one_server("active", "stopped"), PLAIN),
    Scenario("start", [created, asked("stop")], asking("start"), _one_server("active", "stopped"), PLAIN),
    Scenario("soft_delete", [created], asking("soft_delete"), _one_server("active", "soft-delete"), PLAIN),
    Scenario(
        "restore", [created, asked("soft_delete")], asking("restore"), _one_server("active", "soft-delete"), PLAIN
    ),
    Scenario("reboot", [created], asking("reboot"), _one_server("active"), PLAIN),
    Scenario("hard_reboot", [created, asked("stop")], asking("hard_reboot"), _one_server("active", "stopped"), PLAIN),
    Scenario("rebuild", [created], asking("rebuild", image="another"), _one_server("active"), PLAIN),
    Scenario("evacuate", [created, host_dies], asking("evacuate"), _one_server("active")),
    Scenario(
        "evacuate_shared",
        [created, host_dies],
        asking("evacuate"),
        _one_server("active"),
        CloudShape(shared_storage="pool", limits=SPARING),
    ),
    Scenario("create_pinned", [], creating, _created_or_never, PINNING),
    Scenario("migrate_pinned", [created], asking("migrate"), _one_server("active", "resized"), PINNING),
    Scenario("rebuild_pinned", [created], asking("rebuild", image="another"), _one_server("active"), PINNING),
    Scenario("delete_pinned", [created], asking("delete"), _one_server("active", "deleted"), PINNING),
    Scenario("create_among_cells", [], creating, _created_or_never, TWO_CELLS),
    Scenario("migrate_among_cells", [created], asking("migrate"), _one_server("active", "resized"), TWO_CELLS),
    Scenario("create_with_volume", [], creating_with_volume, _created_or_never, STORED),
    Scenario("attach_volume", [created, attached], attaching, _one_server("active"), STORED),
    Scenario("detach_volume", [created, attached], detaching, _one_server("active"), STORED),
    Scenario("delete_with_volumes", [created, attached], asking("delete"), _one_server("active", "deleted"), STORED),
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
    Scenario("no_room", [], creating, _failed, CloudShape(vcpus=1, memory_mb=512, limits=SPARING)),
    Scenario("no_address", [], creating, _failed, CloudShape(addresses=1, ports=1, limits=SPARING)),
]
