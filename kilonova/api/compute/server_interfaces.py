"""/servers/{server}/os-interface: its ports, as Network has them now."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.server import server_of
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.network import Vif
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:os-attach-interfaces:"


async def list_(call: Call) -> Response:
    record = await server_of(call)
    return answer({"interfaceAttachments": await _interfaces(call, record)})


async def show(call: Call) -> Response:
    record = await server_of(call)
    for interface in await _interfaces(call, record):
        if interface["port_id"] == call.path["port"]:
            return answer({"interfaceAttachment": interface})
    raise Refused(404, f"Instance {record.id} does not have a port with id {call.path['port'][:80]}")


async def _interfaces(call: Call, record: ServerRecord) -> list[dict[str, Content]]:
    networks = call.service.networks
    vifs = (await networks.vifs([record.id])).get(record.id, [])
    states = await networks.port_states(record.id)
    return [_shown(call, vif, states.get(vif.port_id, "DOWN")) for vif in vifs]


def _shown(call: Call, vif: Vif, state: str) -> dict[str, Content]:
    fixed = [one for one in vif.addresses if one.kind == "fixed"]
    attributes: dict[str, Content] = {
        "net_id": vif.network_id,
        "port_id": vif.port_id,
        "mac_addr": vif.mac,
        "port_state": state,
        "fixed_ips": [{"subnet_id": one.subnet_id, "ip_address": one.address} for one in fixed],
    }
    return {**attributes, "tag": vif.tag or None} if call.at(2, 70) else attributes


ROUTES = [
    Route(method="GET", path="/servers/{server}/os-interface", handler=list_, rule=f"{RULE}list"),
    Route(method="GET", path="/servers/{server}/os-interface/{port}", handler=show, rule=f"{RULE}show"),
]
