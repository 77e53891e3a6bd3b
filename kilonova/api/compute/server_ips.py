"""/servers/{server}/ips: its addresses by network."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.server import server_of
from kilonova.api.compute.server_view import addresses
from kilonova.api.rejected import Rejected
from kilonova.api.routes import Route
from kilonova.store.server_records import Record

RULE = "os_compute_api:ips:"


def _plain(record: Record) -> dict[str, list[dict[str, Any]]]:
    shown = addresses(record)
    return {name: [{key: one[key] for key in ("version", "addr")} for one in found] for name, found in shown.items()}


async def list_(call: Call) -> Response:
    return answer({"addresses": _plain(await server_of(call))})


async def show(call: Call) -> Response:
    found, network = _plain(await server_of(call)), call.path["network"]
    if network not in found:
        raise Rejected(404, "Instance is not a member of specified network")
    return answer({network: found[network]})


ROUTES = [
    Route(method="GET", path="/servers/{server}/ips", handler=list_, rule=f"{RULE}index"),
    Route(method="GET", path="/servers/{server}/ips/{network}", handler=show, rule=f"{RULE}show"),
]
