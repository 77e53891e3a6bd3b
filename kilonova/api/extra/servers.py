"""/servers: where each server is and how it stands."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.faults import answer
from kilonova.api.reading import limit_of
from kilonova.domain.errors import Refused
from kilonova.store.servers import ServerView, find_server, list_servers
from kilonova.world import Stores


async def list_(request: Request) -> Response:
    stores: Stores = request.app.state.service.engine.world.db
    marker = request.query_params.get("marker", "")
    return answer({"servers": await list_servers(stores, marker=marker, limit=limit_of(request))})


async def show(request: Request) -> Response:
    return answer({"server": await server_of(request)})


async def server_of(request: Request) -> ServerView:
    server_id = request.path_params["id"]
    found = await find_server(request.app.state.service.engine.world.db, server_id)
    if found is None:
        raise Refused("not_found", f"Instance {server_id} could not be found.")
    return found
