"""Availability zones, and agents: there are none, this Network needs no other process."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.services.network.networks import ZONE


async def zones(call: Call) -> Response:
    """List the only zone, for networks and for routers."""
    availability_zones = [{"name": ZONE, "resource": kind, "state": "available"} for kind in ("network", "router")]
    return answer({"availability_zones": availability_zones})


async def agents(call: Call) -> Response:
    """List agents; there are none."""
    return answer({"agents": []})
