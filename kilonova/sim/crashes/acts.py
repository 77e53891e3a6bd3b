"""Acts of the crash scenarios (scenarios.py) on servers: the preparation, and the requests that are crashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import KilonovaError
from kilonova.domain.json import JsonObject
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.engine.abandon import abandon
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServer, NewServers, create, create_many
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.snapshot import submit_snapshot
from kilonova.sim.crashes.outcomes import MANY, SERVER
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.flavors import PINNED, SMALL
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.uploads import image_params

DELETED_AFTER = 8.0  # seconds: the build has failed by then; the crash of a role is noticed only after 15
IMAGE = "5e7e0000-0000-4000-8000-0000000000ff"


def created(cloud: SimCloud) -> None:
    cloud.do(lambda engine: create(engine, new_server(cloud), cloud.cause()))
    cloud.loop.run_for(10.0)


def new_server(cloud: SimCloud, number: int = 1) -> NewServer:
    """Return a server with all that its cloud has: a new port and an existing one; dedicated CPUs; a new volume to boot
    from, which is deleted with it, and an existing one; a group."""
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
    """Return one of several servers: like `new_server`, without the things that exist only once."""
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


def asked(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    def act(cloud: SimCloud) -> None:
        request(cloud, kind, params)
        cloud.loop.run_for(20.0)

    return act


def resized(flavor: Flavor) -> Callable[[SimCloud], None]:
    return asked("resize", flavor=msgspec.to_builtins(flavor))


def resizing(flavor: Flavor) -> Callable[[SimCloud], None]:
    return asking("resize", flavor=msgspec.to_builtins(flavor))


def asking(kind: str, **params: Any) -> Callable[[SimCloud], None]:
    return lambda cloud: request(cloud, kind, params)


def creating(cloud: SimCloud) -> None:
    cloud.ask(lambda engine: create(engine, new_server(cloud), cloud.cause())).add_done_callback(ignore_refusal)


def cell_goes_away(cloud: SimCloud) -> None:
    """Let the only cell go away for half a minute."""
    cloud.outages.begin("cell1")
    cloud.loop.call_later(30.0, cloud.outages.end, "cell1")
    cloud.loop.run_for(2.0)


def creating_many(cloud: SimCloud) -> None:
    new = [_one_of_many(cloud, number) for number in range(1, MANY + 1)]
    wanted = NewServers(flavor=SMALL, least=MANY, most=MANY, make=lambda count: new)
    cloud.ask(lambda engine: create_many(engine, wanted, cloud.cause())).add_done_callback(ignore_refusal)


def attached(cloud: SimCloud) -> None:
    _attach(cloud, 0)
    cloud.loop.run_for(20.0)


def attaching(cloud: SimCloud) -> None:
    _attach(cloud, 1)


def _attach(cloud: SimCloud, number: int) -> None:
    volume = cloud.stock.volumes[number]
    request(cloud, "attach_volume", {"id": f"bdm{number}", "volume_id": volume, "delete_on_termination": bool(number)})


def detaching(cloud: SimCloud) -> None:
    request(cloud, "detach_volume", {"volume_id": cloud.stock.volumes[0]})


def snapshotting(kind: str, *then: str) -> Callable[[SimCloud], None]:
    """Make an image of the server; request `then` at the same time."""

    def act(cloud: SimCloud) -> None:
        ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=image_params(IMAGE, "image", SERVER))
        cloud.ask(lambda engine: submit_snapshot(engine, ask)).add_done_callback(ignore_refusal)
        for other in then:
            request(cloud, other, {})

    return act


def retrying(cloud: SimCloud) -> None:
    ask = Ask(kind="rebuild", server_id=SERVER, cause=cloud.cause(), params=ANY_FAILURE)
    cloud.ask(lambda engine: rebuild_unplaced(engine, ask)).add_done_callback(ignore_refusal)


def retrying_and_deleting(cloud: SimCloud) -> None:
    retrying(cloud)
    request(cloud, "delete", {})


def creating_and_deleting(cloud: SimCloud) -> None:
    """Delete the server while no process continues the interrupted operation."""
    creating(cloud)
    cloud.loop.call_later(DELETED_AFTER, _ask_if_alive, cloud, "delete")


def _ask_if_alive(cloud: SimCloud, kind: str) -> None:
    if "api" in cloud.roles:
        request(cloud, kind, {})


def abandoning(cloud: SimCloud) -> None:
    waiting = next(row for row in read_records(cloud).table("operations") if row["state"] == "waiting")
    cause = cloud.cause()

    async def ask(engine: Engine) -> None:
        await abandon(engine, engine.world.db.cell(waiting["database"]), waiting["id"], cause, "it will never work")

    cloud.ask(ask).add_done_callback(ignore_refusal)


def request(cloud: SimCloud, kind: str, params: JsonObject) -> None:
    ask = Ask(kind=kind, server_id=SERVER, cause=cloud.cause(), params=params)
    cloud.ask(lambda engine: submit(engine, ask)).add_done_callback(ignore_refusal)


def ignore_refusal(answer: Any) -> None:
    """Ignore the answer: the api may die before it, or refuse. The records decide."""
    if not answer.cancelled() and answer.exception() is not None and not isinstance(answer.exception(), KilonovaError):
        raise answer.exception()
