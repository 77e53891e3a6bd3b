"""/plans: a dry run. The same checks and the same plan as the real request, nothing stored."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.rebuild_image import image_for
from kilonova.api.extra.operations import HOST_FORMS, PLAN_FORMS, GoneBody, Named, RebuildBody, ServerBody, form_of
from kilonova.api.extra.plan_create import SEES_ALL, plan_create
from kilonova.api.reading import decode, parsed, read_body
from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.rehearse import Rehearsal, rehearse
from kilonova.operations.declare_gone import GoneRehearsal, rehearse_gone
from kilonova.operations.rehearse_host import HostRehearsal, rehearse_host
from kilonova.operations.submit import find_mapping
from kilonova.store.server_records import find


class GonePlanBody(GoneBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dry run needs no reason."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


async def plan(call: Call) -> Response:
    """A dry run: what would happen, with nothing stored."""
    body = await read_body(call.request)
    if decode(body, Named).operation == "create":
        return answer({"plan": await plan_create(call, with_scheduler(call.engine), parsed(body))})
    call.require(SEES_ALL)
    wish = decode(body, form_of(body, {**PLAN_FORMS, "host_gone": GonePlanBody}))
    told: Rehearsal | HostRehearsal | GoneRehearsal
    if wish.operation == "host_gone":
        told = await rehearse_gone(call.engine, wish.host)
    elif wish.operation in HOST_FORMS:
        told = await rehearse_host(with_scheduler(call.engine), wish.host, call.cause)
    else:
        kind, params = await _asked(call, wish)
        told = await _of_server(call.engine, kind, wish.server, params, call.cause)
    return answer({"plan": msgspec.to_builtins(told)})


async def _asked(call: Call, wish: ServerBody | RebuildBody) -> tuple[str, dict[str, Any]]:
    """Operation and parameters, as the real request has them after its checks; a rebuild, in its newest form."""
    if isinstance(wish, ServerBody):
        return wish.operation, {"host": wish.host} if wish.host else {}
    record = await find(call.db, wish.server)
    if record is None:
        raise Refused("not_found", f"Instance {wish.server} could not be found.")
    return await image_for(call, record, wish.image, reimages=True)


async def _of_server(engine: Engine, kind: str, server: str, params: dict[str, Any], cause: Cause) -> Rehearsal:
    mapping = await find_mapping(engine, server)
    if mapping["cell"] is None:
        raise Refused("busy", f"Instance {server} is being built; wait until it has a host")
    ask = Ask(kind=kind, server_id=server, cause=cause, params=params)
    return await rehearse(with_scheduler(engine), engine.world.db.cell(mapping["cell"]), ask)


def with_scheduler(engine: Engine) -> Engine:
    """The API has none until somebody asks: it costs memory and start-up time."""
    if engine.scheduler is None:
        from kilonova.scheduler.service import Scheduler

        world = engine.world
        down_after = engine.limits.service_down_time
        engine.scheduler = Scheduler(world.db, world.clock, world.random, down_after, world.settings)
    return engine
