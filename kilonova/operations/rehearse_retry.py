"""A dry run of a server in cell0 that is tried again: the checks of the real request, then the plan of `place`."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.server import ACTIVE, Flavor, Server
from kilonova.engine.accept import Ask, admitted, gather
from kilonova.engine.context import Subject
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
from kilonova.engine.model import Facts
from kilonova.engine.rehearse import REHEARSAL, plan_only, planned_steps
from kilonova.engine.submit import find_mapping, fresh
from kilonova.operations.create.plan import CreateRehearsal, PlannedServer, planned_server
from kilonova.operations.rebuild_in_cell0 import request_of
from kilonova.operations.retry import whole_request
from kilonova.operations.steps.outlook import outlook, root_disk
from kilonova.world import Tx


class RetryRehearsal(CreateRehearsal, frozen=True, kw_only=True):
    """The result of a dry run. `problem` is set if the retry would fail: the server would be buried again."""

    server: str
    failure: str  # the class with which it was buried
    outlook: dict[str, Any]  # what happens to the disks, and what is claimed


async def rehearse_retry(engine: Engine, ask: Ask) -> RetryRehearsal:
    """Plan a retry. Raise `Refused` exactly when the real request would be refused."""
    mapping = await find_mapping(engine, ask.server_id)
    if mapping["cell"] is None:
        raise Refused("busy", f"Instance {ask.server_id} is being built; wait until it has a host")
    whole = await whole_request(engine, ask)
    operation = engine.operation(whole.kind)

    async def body(tx: Tx) -> tuple[Subject, Facts]:
        subject = await gather(engine, tx, whole, lock=False)
        return subject, await admitted(tx, operation, subject)

    subject, facts = await engine.world.db.cell(mapping["cell"]).read(body)
    server = subject.server
    assert server is not None
    params = request_of(whole.params["spec"], server, facts["wish"])
    found, problem = await plan_place(engine, ask.cause, server, params)
    details = problem.details if problem is not None and isinstance(problem.details, dict) else found
    planned = planned_server(params["name"], msgspec.convert(params["flavor"], Flavor), found.get("candidates", []))
    return RetryRehearsal(
        operation=operation.name,
        server=ask.server_id,
        failure=server.cell0_failure or "",
        servers=[planned],
        ports=params.get("networks", []),
        volumes=params.get("volumes", []),
        steps=[step for kind in (operation.name, "place", "build") for step in planned_steps(engine.operation(kind))],
        decision=details.get("decision"),
        problem=problem,
        outlook=_outlook(params, planned),
    )


async def plan_place(
    engine: Engine, cause: Cause, server: Server, params: dict[str, Any]
) -> tuple[Facts, Problem | None]:
    """Return the scheduler's choice as of now, or the problem."""
    ask = Ask(kind="place", server_id=server.id, cause=cause, params=params)
    op = fresh(engine, ask, REHEARSAL, turn=server.turn + 1)
    return await plan_only(engine, engine.world.db.control, engine.operation("place"), op, None)


def _outlook(params: dict[str, Any], planned: PlannedServer) -> dict[str, Any]:
    """It never had a disk: each is made, or is a volume that is attached as it is."""
    volumes = params.get("volumes", [])
    disks = [_fate(one) for one in volumes]
    if not any(one.get("is_root") for one in volumes):
        disks.insert(0, root_disk("created", params.get("image", "")))
    return outlook(planned.host, ACTIVE, disks, claims=planned.claims)


def _fate(volume: dict[str, Any]) -> dict[str, Any]:
    disk = "root" if volume.get("is_root") else volume.get("device") or "the next free device"
    if volume.get("volume_id"):
        return {"disk": disk, "fate": "kept", "volume": volume["volume_id"]}
    source = {f"from_{kind}": volume[f"{kind}_id"] for kind in ("image", "snapshot") if volume.get(f"{kind}_id")}
    return {"disk": disk, "fate": "created", **source}
