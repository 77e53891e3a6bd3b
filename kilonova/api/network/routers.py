"""Add subnets to routers and remove them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.network.collection import viewer_of
from kilonova.domain.errors import Refused
from kilonova.records.kinds import id_of, owner_of


async def _router(call: Call) -> str:
    """Return the router's id; the caller must be able to see and to change it."""
    router = await call.service.networks.routers.show(viewer_of(call, "get_router"), call.path["id"])
    call.require(project_id=owner_of(router))
    return id_of(router)


async def add_interface(call: Call) -> Response:
    """Add an interface by a subnet, whose gateway the router becomes, or by a port."""
    if len(call.body) != 1:
        raise Refused("BadRequest", "Bad router request: give either subnet_id or port_id, not both.", status=400)
    interfaces = call.service.networks.interfaces
    viewer = viewer_of(call, call.route.rule)
    return answer(await interfaces.add(viewer, await _router(call), **call.body))


async def remove_interface(call: Call) -> Response:
    """Remove an interface by a subnet, a port, or both, which must then belong together."""
    interfaces = call.service.networks.interfaces
    viewer = viewer_of(call, call.route.rule)
    return answer(await interfaces.remove(viewer, await _router(call), **call.body))
