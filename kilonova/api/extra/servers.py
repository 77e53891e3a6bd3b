"""/servers: the host and the state of each server."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.reading import limit_of
from kilonova.domain.errors import Refused
from kilonova.services.compute.servers import FILTERS, ServerSummary, find_server, list_servers
from kilonova.world import Stores


async def list_(call: Call) -> Response:
    """List the servers with their host and state; `?name=`, `?host=` and `?vm_state=` filter."""
    if unknown := set(call.query) - {"limit", "marker", *FILTERS}:
        raise Refused("bad_request", f"unknown query parameter {', '.join(sorted(unknown))}")
    stores: Stores = call.db
    marker, by = call.query.get("marker", ""), {name: call.query[name] for name in FILTERS if name in call.query}
    return answer({"servers": await list_servers(stores, marker=marker, limit=limit_of(call.request), by=by)})


async def show(call: Call) -> Response:
    """Show the host and the state of one server."""
    return answer({"server": await server_of(call)})


async def server_of(call: Call) -> ServerSummary:
    server_id = call.path["id"]
    server = await find_server(call.db, server_id)
    if server is None:
        raise Refused("not_found", f"Instance {server_id} could not be found.")
    return server
