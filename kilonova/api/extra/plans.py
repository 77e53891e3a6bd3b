"""/plans: dry runs. They make the same checks and the same plan as the real request, and store nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.rebuild_image import image_for
from kilonova.api.compute.server_resize import resize_params
from kilonova.api.compute.server_unplaced import rebuild_params
from kilonova.api.extra.operations import (
    BOTH_FORMS,
    HOST_FORMS,
    EvacuateBody,
    GoneBody,
    OperationName,
    RebuildBody,
    ResizeBody,
    ServerBody,
    form_of,
)
from kilonova.api.extra.plan_create import SEES_ALL, plan_create
from kilonova.api.extra.planning import with_scheduler
from kilonova.api.extra.snapshots import SnapshotBody, planned_snapshot, server_named, with_image_quota
from kilonova.api.reading import decode, read_body
from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.plans import PLANS
from kilonova.domain.whole_hosts import HostPlan
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.rehearse import Rehearsal, rehearse
from kilonova.engine.submit import find_mapping
from kilonova.operations.in_cell0.rehearse import RetryRehearsal, rehearse_retry
from kilonova.operations.in_cell0.retry import ANY_FAILURE
from kilonova.operations.whole_hosts.declare_gone import GoneRehearsal, rehearse_gone
from kilonova.operations.whole_hosts.rehearse import rehearse_host
from kilonova.store.open_stores import CELL0


class SnapshotPlanBody(SnapshotBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dry run needs no name."""

    name: Annotated[str, Meta(min_length=1, max_length=255)] = "planned"


class GonePlanBody(GoneBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dry run needs no reason."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


_FORMS: dict[str, type[msgspec.Struct] | None] = {
    **BOTH_FORMS,
    "create": None,  # the body of POST /servers
    "snapshot": SnapshotPlanBody,
    "host_gone": GonePlanBody,
}
PLAN_FORMS = {name: _FORMS[name] for name in PLANS}


async def plan(call: Call) -> Response:
    """Rehearse an operation: show its effects without storing anything."""
    body = await read_body(call.request)
    if decode(body, OperationName).operation == "create":
        return answer({"plan": await plan_create(call, with_scheduler(call.engine), body)})
    call.require(SEES_ALL)
    request = decode(body, form_of(body, PLAN_FORMS))
    rehearsal: Rehearsal | HostPlan | GoneRehearsal | RetryRehearsal
    if request.operation == "host_gone":
        rehearsal = await rehearse_gone(call.engine, request.host)
    elif request.operation == "retry":
        ask = Ask(kind="rebuild", server_id=request.server, cause=call.cause, params=ANY_FAILURE)
        rehearsal = await rehearse_retry(with_scheduler(call.engine), ask)
    elif request.operation in HOST_FORMS:
        rehearsal = await rehearse_host(
            with_scheduler(call.engine), request.operation, request.named(), request.bulk(), call.cause
        )
    elif isinstance(request, RebuildBody):
        rehearsal = await _rebuild(call, request)
    else:
        kind, params = await _kind_and_params(call, request)
        rehearsal = await _of_server(call.engine, kind, request.server, params, call.cause)
    if isinstance(rehearsal, Rehearsal) and request.operation == "snapshot":
        rehearsal = await with_image_quota(call, rehearsal)
    return answer({"plan": msgspec.to_builtins(rehearsal)})


async def _rebuild(call: Call, request: RebuildBody) -> Rehearsal | RetryRehearsal:
    """Rehearse the newest form of a rebuild: a server in cell0 is scheduled again."""
    record = await server_named(call, request.server)
    if record.cell == CELL0:
        params = await rebuild_params(call, record, {"imageRef": request.image}, {})
        ask = Ask(kind="rebuild", server_id=request.server, cause=call.cause, params=params)
        return await rehearse_retry(with_scheduler(call.engine), ask)
    kind, params = await image_for(call, record, request.image, reimages=True)
    return await _of_server(call.engine, kind, request.server, params, call.cause)


async def _kind_and_params(
    call: Call, request: ServerBody | EvacuateBody | ResizeBody | SnapshotBody
) -> tuple[str, JsonObject]:
    """Return the operation and its parameters after the checks of the real request."""
    if isinstance(request, ServerBody | EvacuateBody):
        return request.operation, request.params()
    if isinstance(request, SnapshotBody):
        return await planned_snapshot(call, request)
    return request.operation, await resize_params(call, await server_named(call, request.server), request.flavor)


async def _of_server(engine: Engine, kind: str, server: str, params: JsonObject, cause: Cause) -> Rehearsal:
    mapping = await find_mapping(engine, server)
    if mapping["cell"] is None:
        raise Refused("busy", f"Instance {server} is being built; wait until it has a host")
    ask = Ask(kind=kind, server_id=server, cause=cause, params=params)
    await engine.operation(ask.kind).admit(engine, ask, mapping)
    return await rehearse(with_scheduler(engine), engine.world.db.cell(mapping["cell"]), ask)
