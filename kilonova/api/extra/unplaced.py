"""/unplaced: servers that never found a host, and where each would go now. Retrying is an operation like the others."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.extra.planning import with_scheduler
from kilonova.api.reading import limit_of
from kilonova.domain.errors import Refused
from kilonova.operations.in_cell0.listing import list_unplaced


async def list_(call: Call) -> Response:
    """Servers in cell0, by id."""
    if unknown := set(call.query) - {"limit", "marker"}:
        raise Refused("bad_request", f"unknown query parameter {', '.join(sorted(unknown))}")
    servers = await list_unplaced(
        with_scheduler(call.engine), call.cause, limit=limit_of(call.request), marker=call.query.get("marker", "")
    )
    return answer({"unplaced": msgspec.to_builtins(servers)})
