"""The dry run of POST /servers: same body, microversions and errors; nothing is stored.

Callers who may create a server may use it. Only administrators see the hosts and the reasons for choosing them
(`kilonova:plans`).
"""

from __future__ import annotations

import msgspec

from kilonova.api.call import Call
from kilonova.api.compute.server_create_body import read
from kilonova.api.content import Content
from kilonova.api.extra.create import compute_call, compute_refusals
from kilonova.engine.core import Engine
from kilonova.operations.create.plan import CreateRehearsal, rehearse_create
from kilonova.operations.create.request import check
from kilonova.quota.resources import UNLIMITED

SEES_ALL = "kilonova:plans"
WAITS = "It is not known whether a host fits; the request would wait."


async def plan_create(call: Call, engine: Engine, body: bytes) -> dict[str, Content]:
    """`body` is that of POST /servers with `operation` beside it; `engine` has a scheduler."""
    compute = compute_call(call, body)
    with compute_refusals():
        wanted = (await check(compute.requester, read(compute), dry=True)).servers
        rehearsal = await rehearse_create(engine, wanted, call.cause)
    content: dict[str, Content] = msgspec.structs.asdict(rehearsal)
    if not call.allows(SEES_ALL):
        content |= _for_the_owner(rehearsal, engine.operation("place").safe_message)
    return {**content, "quota": await _quota(call, wanted.each, len(rehearsal.servers))}


def _for_the_owner(rehearsal: CreateRehearsal, safe_message: str) -> dict[str, Content]:
    """Return the fields that owners see otherwise: no hosts, and the words of a fault."""
    servers: list[Content] = [{"name": server.name, "resources": server.resources} for server in rehearsal.servers]
    problem: Content = None
    if rehearsal.problem is not None:
        code = rehearsal.problem.code
        problem = {"code": code, "message": WAITS if code == "not_known" else safe_message}
    return {"servers": servers, "decision": None, "problem": problem}


async def _quota(call: Call, each: dict[str, int], servers: int) -> dict[str, dict[str, int]]:
    """Return the project's quota: the limit, the current usage, the requested amount and the rest. -1 is unlimited."""
    quotas, content = await call.service.quotas.show(call.caller.project_id, counted=True), {}
    for name, amount in each.items():
        limit, used, requested = quotas[name].limit, quotas[name].in_use, amount * servers
        left = UNLIMITED if limit == UNLIMITED else limit - used - requested
        content[name] = {"limit": limit, "used": used, "asked": requested, "left": left}
    return content
