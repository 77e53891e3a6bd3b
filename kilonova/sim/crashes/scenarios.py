"""The operations that are crashed at every point (crashes.py); outcomes.py says what must become of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.domain.details import Details
from kilonova.domain.errors import KilonovaError
from kilonova.domain.json import JsonObject
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.engine.abandon import abandon
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.hosts import states as hosts
from kilonova.hosts.failures import arm_watch, disarm_watch
from kilonova.operations.create.accept import NewServer, NewServers, create, create_many
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.snapshot import submit_snapshot
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.settings import Default, HaOptions
from kilonova.sim.crashes.crashes import Scenario
from kilonova.sim.crashes.outcomes import (
    MANY,
    all_or_none,
    all_whole_or_none,
    buried_or_gone,
    buried_or_never,
    created_or_never,
    evacuated_once,
    failed,
    one_server,
    resized_or_kept,
    whole_or_any,
    whole_or_buried,
    whole_or_gone,
    whole_or_never,
    with_its_image,
)
from kilonova.sim.crashes.outcomes import SERVER as SERVER
from kilonova.sim.lab.cloud import HOUR, CloudShape, SimCloud
from kilonova.sim.lab.flavors import LARGE, LEAN, OFFER, PINNED, ROOMY, SMALL, TOPOLOGY, VCPUS
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.settings import simulated
from kilonova.sim.lab.uploads import image_params

SPARING = 5.0  # seconds between two writes of heartbeats: there are thousands of runs
PLAIN = CloudShape(flush_seconds=SPARING)
TWO_CELLS = CloudShape(hosts=4, cells=2, flush_seconds=SPARING)
NETWORKED = CloudShape(addresses=4, ports=1, flush_seconds=SPARING)
STAYING = CloudShape(
    hosts=1, flush_seconds=SPARING, settings=simulated(default=Default(allow_resize_to_same_host=True))
)
PINNING = CloudShape(vcpus=VCPUS, topology=TOPOLOGY, offer=OFFER, flush_seconds=SPARING)
STORED = CloudShape(volumes=2, flush_seconds=SPARING)
WATCHED = CloudShape(flush_seconds=SPARING, settings=simulated(ha=HaOptions(automatic=True)))
EVERYTHING = CloudShape(
    addresses=4, ports=1, volumes=2, rare_volumes=True, groups=("anti-affinity",), flush_seconds=SPARING
)
DELETED_AFTER = 8.0  # seconds: the build has failed by then; who crashed at it is missed only after 15
IMAGE = "5e7e0000-0000-4000-8000-0000000000ff"
GONE = ("resized", "deleted")


def created(cloud: SimCloud) -> None:
    cloud.do(lambda engine: create(engine, new_server(cloud), cloud.cause()))
    cloud.loop.run_for(10.0)


def new_server(cloud: SimCloud, number: int = 1) -> NewServer:
    """With all that its cloud has: ports, one of its own and one that it is given; CPUs of its own; a volume to boot
    from, which is made for it and goes with it, and one that lies there; a group."""
    group = cloud.shape.groups[0] if cloud.shape.groups else None
    return NewServer(
        id=f"{SERVER[:-1]}{number}",
        name=f"a{number}",
        flavor=PINNED if cloud.shape.offer.dedicated else SMALL,
        image="img",
        networks=cloud.laid.wanted(1, cloud.laid.ports) if cloud.laid.network else [],
        volumes=[_boot(cloud), WantedVolume(volume_id=cloud.stock.volumes[0], device="/dev/vdb")]
        if _boots(cloud)
        else [],
        group=group,
        details=Details(scheduler_hints={"group": [group]} if group else {}),
    )


def _one_of_many(cloud: SimCloud, number: int) -> NewServer:
    """As above; what there is only once, none of them gets."""
    data = WantedVolume(size=1, device="/dev/vdb", delete_on_termination=True)
    new: NewServer = msgspec.structs.replace(
        new_server(cloud, number),
        networks=cloud.laid.wanted(1) if cloud.laid.network else [],
        volumes=[_boot(cloud), data] if _boots(cloud) else [],
    )
    return new


def _boots(cloud: SimCloud) -> bool:
    return bool(cloud.stock.snapshot)


def _boot(cloud: SimCloud) -> WantedVolume:
    return WantedVolume(snapshot_id=cloud.stock.snapshot, is_root=True, device="/dev/vda", delete_on_termination=True)


def full(cloud: SimCloud) -> None:
    """No host has room for the disks of two copies."""
    for name in cloud.hardware.hosts():
        cloud.hardware.host(name).has_room = False


def asked(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    def act(cloud: SimCloud) -> None:
        _ask(cloud, kind, params)
        cloud.loop.run_for(20.0)

    return act


def resized(flavor: Flavor) -> Callable[[SimCloud], None]:
    return asked("resize", flavor=msgspec.to_builtins(flavor))


def resizing(flavor: Flavor) -> Callable[[SimCloud], None]:
    return asking("resize", flavor=msgspec.to_builtins(flavor))


def asking(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    return lambda cloud: _ask(cloud, kind, params)


def creating(cloud: SimCloud) -> None:
    cloud.ask(lambda engine: create(engine, new_server(cloud), cloud.cause())).add_done_callback(_no_matter)


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


def snapshotting(kind: str, *then: str) -> Callable[[SimCloud], None]:
    """An image of the server is made; `then` is asked for at the same time."""

    def act(cloud: SimCloud) -> None:
        ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=image_params(IMAGE, "image", SERVER))
        cloud.ask(lambda engine: submit_snapshot(engine, ask)).add_done_callback(_no_matter)
        for other in then:
            _ask(cloud, other, {})

    return act


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
    ask = Ask(kind="rebuild", server_id=SERVER, cause=cloud.cause(), params=ANY_FAILURE)
    cloud.ask(lambda engine: rebuild_unplaced(engine, ask)).add_done_callback(_no_matter)


def retrying_and_deleting(cloud: SimCloud) -> None:
    retrying(cloud)
    _ask(cloud, "delete", {})


def hosts_fail(cloud: SimCloud) -> None:
    """Every host refuses to switch a guest on, for good: no other one is tried."""
    for host in cloud.hardware.hosts():
        cloud.hardware.fail(host, "ensure_power", 1000, "refuse")


def creating_and_deleting(cloud: SimCloud) -> None:
    """The delete comes while nobody goes on with what the crash interrupted."""
    creating(cloud)
    cloud.loop.call_later(DELETED_AFTER, _ask_if_alive, cloud, "delete")


def _ask_if_alive(cloud: SimCloud, kind: str) -> None:
    if "api" in cloud.roles:
        _ask(cloud, kind, {})


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


def _host_of_server(cloud: SimCloud) -> str:
    server = read_records(cloud).server(SERVER)
    assert server is not None
    return str(server["host"])


def guest_ends(cloud: SimCloud) -> None:
    """By itself: its host notices."""
    switch_guest(cloud.hardware, _host_of_server(cloud), SERVER, False)


def host_dies(cloud: SimCloud) -> None:
    """The server's host loses power and everybody has noticed."""
    cloud.hardware.switch_power(_host_of_server(cloud), False)
    cloud.loop.run_for(100.0)


def reverting_before_it_answers(cloud: SimCloud) -> None:
    """The host that lost its power is back while the revert waits for it."""
    _ask(cloud, "revert_resize", {})
    cloud.loop.call_later(10.0, cloud.hardware.switch_power, _host_of_server(cloud), True)


def host_dies_disarmed(cloud: SimCloud) -> None:
    """The failure watch would act, and may not yet."""
    cloud.do(lambda engine: disarm_watch(engine, HOUR, "the scenario begins later", cloud.cause()))
    host_dies(cloud)
    cloud.loop.run_for(100.0)


def arming(cloud: SimCloud) -> None:
    """Let the watch go on, until it has begun to evacuate; a watcher that crashed is followed after two minutes."""
    cloud.ask(arm_watch).add_done_callback(_no_matter)
    for _ in range(60):
        cloud.loop.run_for(5.0)
        if any(row["operation_id"] for row in read_records(cloud).table("host_failures")):
            return


def declaring_gone(cloud: SimCloud) -> None:
    """The host that lost its power: the server is on it, resized, or was evacuated from it."""
    host = next(name for name in cloud.hardware.hosts() if not cloud.hardware.host(name).switches.power)
    cause = cloud.cause()

    async def ask(engine: Engine) -> None:
        journal, _ = await hosts.find_host(engine, host)
        await declare_gone(engine, journal, host, "it burnt down", cause)

    cloud.ask(ask).add_done_callback(_no_matter)


def evacuating_hosts(cloud: SimCloud) -> None:
    """All servers of the host that lost its power."""
    dead = [name for name in cloud.hardware.hosts() if not cloud.hardware.host(name).switches.power]
    _ask_for_hosts(cloud, "evacuate_host", dead)


def draining(cloud: SimCloud) -> None:
    """The server's host."""
    _ask_for_hosts(cloud, "drain_host", [_host_of_server(cloud)])


def drained(cloud: SimCloud) -> None:
    draining(cloud)
    cloud.loop.run_for(120.0)


def returning(cloud: SimCloud) -> None:
    """To the host that was drained."""
    closed = [row["name"] for row in read_records(cloud).table("hosts") if row["draining"]]
    _ask_for_hosts(cloud, "return_host", closed)


def _ask_for_hosts(cloud: SimCloud, kind: str, hosts: list[str]) -> None:
    cause = cloud.cause()
    cloud.ask(lambda engine: ask_for_hosts(engine, kind, hosts, cause, None, Bulk())).add_done_callback(_no_matter)


def _ask(cloud: SimCloud, kind: str, params: JsonObject) -> None:
    ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=params)
    cloud.ask(lambda engine: submit(engine, ask)).add_done_callback(_no_matter)


def _no_matter(answer: Any) -> None:
    """The api may die before it answers, or refuse: the records decide."""
    if not answer.cancelled() and answer.exception() is not None and not isinstance(answer.exception(), KilonovaError):
        raise answer.exception()


SCENARIOS = [
    Scenario("create", [], creating, created_or_never, NETWORKED),
    Scenario("create_many", [], creating_many, all_or_none, PLAIN),
    Scenario("create_while_its_cell_is_away", [cell_goes_away], creating, created_or_never, PLAIN),
    Scenario("delete", [created], asking("delete"), one_server("active", "deleted"), NETWORKED),
    Scenario("create_with_everything", [], creating, whole_or_never, EVERYTHING),
    Scenario("create_many_with_everything", [], creating_many, all_whole_or_none, EVERYTHING),
    Scenario("delete_with_everything", [created], asking("delete"), whole_or_gone, EVERYTHING),
    Scenario("migrate", [created], asking("migrate"), one_server("active", "resized"), NETWORKED),
    Scenario("confirm", [created, asked("migrate")], asking("confirm_resize"), one_server("active", "resized"), PLAIN),
    Scenario(
        "revert", [created, asked("migrate")], asking("revert_resize"), one_server("active", "resized"), NETWORKED
    ),
    Scenario(
        "revert_after_silence",
        [created, asked("migrate"), host_dies],
        reverting_before_it_answers,
        one_server("active", "resized"),
        PLAIN,
    ),
    Scenario("resize", [created], resizing(LARGE), one_server("active", "resized"), NETWORKED),
    Scenario("resize_on_its_host", [created], resizing(ROOMY), one_server("active", "resized"), STAYING),
    Scenario("resize_pinned", [created], resizing(LARGE), one_server("active", "resized"), PINNING),
    Scenario("resize_with_volumes", [created, attached], resizing(LARGE), one_server("active", "resized"), STORED),
    Scenario("confirm_a_resize", [created, resized(LARGE)], asking("confirm_resize"), resized_or_kept(LARGE), PLAIN),
    Scenario("revert_a_resize", [created, resized(LEAN)], asking("revert_resize"), resized_or_kept(SMALL), NETWORKED),
    Scenario("delete_a_resized_server", [created, resized(LARGE)], asking("delete"), one_server(*GONE), NETWORKED),
    Scenario("stop", [created], asking("stop"), one_server("active", "stopped"), PLAIN),
    Scenario("guest_ends", [created], guest_ends, one_server("active", "stopped"), PLAIN),
    Scenario("start", [created, asked("stop")], asking("start"), one_server("active", "stopped"), PLAIN),
    Scenario("soft_delete", [created], asking("soft_delete"), one_server("active", "soft-delete"), PLAIN),
    Scenario("restore", [created, asked("soft_delete")], asking("restore"), one_server("active", "soft-delete"), PLAIN),
    Scenario("reboot", [created], asking("reboot"), one_server("active"), PLAIN),
    Scenario("hard_reboot", [created, asked("stop")], asking("hard_reboot"), one_server("active", "stopped"), PLAIN),
    Scenario("rebuild", [created], asking("rebuild", image="another"), one_server("active"), PLAIN),
    Scenario("rebuild_full", [created, full], asking("rebuild", image="another"), one_server("active"), PLAIN),
    Scenario(
        "rebuild_volume",
        [created],
        asking("rebuild_volume", image="another", reimage=True),
        one_server("active"),
        EVERYTHING,
    ),
    Scenario("snapshot", [created], snapshotting("snapshot"), with_its_image("active"), PLAIN),
    Scenario(
        "snapshot_and_delete",
        [created],
        snapshotting("snapshot", "delete"),
        with_its_image("active", "deleted"),
        PLAIN,
    ),
    Scenario("snapshot_volumes", [created], snapshotting("snapshot_volumes"), with_its_image("active"), EVERYTHING),
    Scenario("rebuild_in_cell0", [buried], retrying, whole_or_buried, EVERYTHING),
    Scenario("rebuild_in_cell0_and_delete", [buried], retrying_and_deleting, whole_or_any, EVERYTHING),
    Scenario("evacuate", [created, host_dies], asking("evacuate"), one_server("active"), NETWORKED),
    Scenario(
        "evacuate_shared",
        [created, host_dies],
        asking("evacuate"),
        one_server("active"),
        CloudShape(shared_storage="pool", flush_seconds=SPARING),
    ),
    Scenario("evacuate_host", [created, host_dies], evacuating_hosts, one_server("active"), NETWORKED),
    Scenario("failure_watch", [created, host_dies_disarmed], arming, evacuated_once, WATCHED),
    Scenario("drain_host", [created], draining, one_server("active"), NETWORKED),
    Scenario("drain_host_with_everything", [created], draining, one_server("active"), EVERYTHING),
    Scenario("return_host", [created, drained], returning, one_server("active"), NETWORKED),
    Scenario("host_gone", [created, host_dies, asked("evacuate")], declaring_gone, one_server("active"), NETWORKED),
    Scenario(
        "host_gone_resized",
        [created, asked("migrate"), host_dies],
        declaring_gone,
        one_server("active", "resized"),
        NETWORKED,
    ),
    Scenario("create_pinned", [], creating, created_or_never, PINNING),
    Scenario("migrate_pinned", [created], asking("migrate"), one_server("active", "resized"), PINNING),
    Scenario("rebuild_pinned", [created], asking("rebuild", image="another"), one_server("active"), PINNING),
    Scenario("delete_pinned", [created], asking("delete"), one_server("active", "deleted"), PINNING),
    Scenario("create_among_cells", [], creating, created_or_never, TWO_CELLS),
    Scenario("migrate_among_cells", [created], asking("migrate"), one_server("active", "resized"), TWO_CELLS),
    Scenario("attach_volume", [created, attached], attaching, one_server("active"), STORED),
    Scenario("detach_volume", [created, attached], detaching, one_server("active"), STORED),
    Scenario("migrate_with_volumes", [created, attached], asking("migrate"), one_server("active", "resized"), STORED),
    Scenario(
        "revert_with_volumes",
        [created, attached, asked("migrate")],
        asking("revert_resize"),
        one_server("active", "resized"),
        STORED,
    ),
    Scenario("evacuate_with_volumes", [created, attached, host_dies], asking("evacuate"), one_server("active"), STORED),
    Scenario(
        "abandon_a_rebuild", [created, refused("rebuild", image="another")], abandoning, one_server("active"), PLAIN
    ),
    Scenario("abandon_a_migration", [created, refused("migrate")], abandoning, one_server("active"), NETWORKED),
    Scenario("no_room", [], creating, failed, CloudShape(vcpus=1, memory_mb=512, flush_seconds=SPARING)),
    Scenario("build_fails", [hosts_fail], creating, buried_or_never, EVERYTHING),
    Scenario("build_fails_and_delete", [hosts_fail], creating_and_deleting, buried_or_gone, EVERYTHING),
    Scenario("no_address", [], creating, failed, CloudShape(addresses=1, ports=1, flush_seconds=SPARING)),
]
