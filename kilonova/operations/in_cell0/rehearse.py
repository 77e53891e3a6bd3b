"""A dry run of a server in cell0 that is tried again: the checks of the real request, then the plan of `place`."""

from __future__ import annotations

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.params import RetryParams, ServerSpec
from kilonova.domain.server import ACTIVE, Server
from kilonova.domain.volume import WantedVolume
from kilonova.engine.accept import Ask, admitted, gather
from kilonova.engine.context import Subject
from kilonova.engine.core import Engine
from kilonova.engine.rehearse import REHEARSAL, Planned, plan_only, planned_steps
from kilonova.engine.submit import find_mapping, fresh
from kilonova.operations.create.place import PlaceServer
from kilonova.operations.create.plan import CreateRehearsal, PlannedServer, decision_in, planned_server
from kilonova.operations.facts import CreateFacts
from kilonova.operations.in_cell0.retry import whole_request
from kilonova.operations.rebuild_in_cell0 import RebuildInCell0, request_of
from kilonova.operations.steps.outlook import DiskFate, outlook, root_disk
from kilonova.world import Tx


class RetryRehearsal(CreateRehearsal, frozen=True, kw_only=True):
    """The result of a dry run. `problem` is set if the retry would fail: the server would be buried again."""

    server: str
    failure: str  # the class with which it was buried
    outlook: JsonObject  # the fate of the disks, and the claim


async def rehearse_retry(engine: Engine, ask: Ask) -> RetryRehearsal:
    """Plan a retry. Raise `Refused` exactly when the real request would be refused."""
    mapping = await find_mapping(engine, ask.server_id)
    if mapping["cell"] is None:
        raise Refused("busy", f"Instance {ask.server_id} is being built; wait until it has a host")
    whole = await whole_request(engine, ask)
    operation = RebuildInCell0()

    async def body(tx: Tx) -> Subject[RetryParams]:
        subject = await gather(engine, tx, whole, operation, lock=False)
        await admitted(tx, operation, subject)
        return subject

    subject = await engine.world.db.cell(mapping["cell"]).read(body)
    server = subject.server
    assert server is not None
    spec = request_of(subject.params.spec, server, subject.params)
    plan = await plan_place(engine, ask.cause, server, spec)
    planned = planned_server(spec.name, spec.flavor, plan.facts.candidates)
    return RetryRehearsal(
        operation=operation.name,
        server=ask.server_id,
        failure=server.cell0_failure or "",
        servers=[planned],
        ports=spec.networks,
        volumes=spec.volumes,
        steps=[step for kind in (operation.name, "place", "build") for step in planned_steps(engine.operation(kind))],
        decision=decision_in(plan),
        problem=plan.problem,
        outlook=_outlook(spec, planned),
    )


async def plan_place(engine: Engine, cause: Cause, server: Server, spec: ServerSpec) -> Planned[CreateFacts]:
    """Return the scheduler's choice as of now, or the problem."""
    ask = Ask(kind="place", server_id=server.id, cause=cause, params=spec)
    op = fresh(engine, ask, REHEARSAL, turn=server.turn + 1)
    return await plan_only(engine, engine.world.db.control, PlaceServer(), op, None)


def _outlook(spec: ServerSpec, planned: PlannedServer) -> JsonObject:
    """Return the outlook: the server never had a disk, so each is made, or is a volume that is attached as it is."""
    disks = [_fate(one) for one in spec.volumes]
    if not any(one.is_root for one in spec.volumes):
        disks.insert(0, root_disk("created", spec.image))
    return outlook(planned.host, ACTIVE, disks, claims=planned.claims)


def _fate(volume: WantedVolume) -> DiskFate:
    disk = "root" if volume.is_root else volume.device or "the next free device"
    if volume.volume_id:
        return {"disk": disk, "fate": "kept", "volume": volume.volume_id}
    sources = {"from_image": volume.image_id, "from_snapshot": volume.snapshot_id}
    return {"disk": disk, "fate": "created", **{name: id_ for name, id_ in sources.items() if id_}}
