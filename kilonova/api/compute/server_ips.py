"""/servers/{server}/ips: its addresses by network."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.server import look_at_ports, server_of
from kilonova.api.compute.server_view import addresses
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused

RULE = "os_compute_api:ips:"


async def _plain(call: Call) -> dict[str, list[dict[str, Content]]]:
    record = await server_of(call)
    await look_at_ports(call, [record])
    return addresses(record, whole=False)


async def list_(call: Call) -> Response:
    return answer({"addresses": await _plain(call)})


async def show(call: Call) -> Response:
    networks, network = await _plain(call), call.path["network"]
    if network not in networks:
        raise Refused(404, "Instance is not a member of specified network")
    return answer({network: networks[network]})


ROUTES = [
    Route(method="GET", path="/servers/{server}/ips", handler=list_, rule=f"{RULE}index"),
    Route(method="GET", path="/servers/{server}/ips/{network}", handler=show, rule=f"{RULE}show"),
]
