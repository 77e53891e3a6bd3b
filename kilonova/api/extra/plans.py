"""/plans: a dry run. The same checks and the same plan as the real request, nothing stored. Create joins in part 4."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.extra.operations import ServerBody
from kilonova.api.reading import decode, read_body
from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.rehearse import rehearse
from kilonova.operations.submit import find_mapping


async def plan(call: Call) -> Response:
    engine = call.engine
    wish = decode(await read_body(call.request), ServerBody)
    params = {"host": wish.host} if wish.host else {}
    ask = Ask(kind=wish.operation, server_id=wish.server, cause=call.cause, params=params)
    mapping = await find_mapping(engine, wish.server)
    if mapping["cell"] is None:
        raise Refused("busy", f"Instance {wish.server} is being built; wait until it has a host")
    told = await rehearse(_with_scheduler(engine), engine.world.db.cell(mapping["cell"]), ask)
    return answer({"plan": msgspec.to_builtins(told)})


def _with_scheduler(engine: Engine) -> Engine:
    """The API has none until somebody asks: it costs memory and start-up time."""
    if engine.scheduler is None:
        from kilonova.scheduler.service import Scheduler

        world = engine.world
        engine.scheduler = Scheduler(world.db, world.clock, world.random, engine.limits.service_down_time)
    return engine
