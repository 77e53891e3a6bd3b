"""The networks of a new server: who may use them, and which ports it gets there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from kilonova.domain.errors import Refused
from kilonova.domain.network import WantedPort
from kilonova.operations.checks.requester import Requester
from kilonova.records.kinds import owner_of

ATTACH_NETWORK = "os_compute_api:servers:create:attach_network"
ATTACH_EXTERNAL = "network:attach_external_network"
CHOOSE_ADDRESS = "create_port:fixed_ips:ip_address"
RequestedPort = Mapping[str, str | None]  # an entry of `networks`
NetworkRequest = Literal["auto", "none"] | Sequence[RequestedPort] | None


async def networks_for(requester: Requester, given: NetworkRequest, count: int) -> list[WantedPort]:
    """Return the ports of each of `count` servers; whether there is room for them is another question."""
    if given == "none":
        return []
    networks = requester.services.networks
    if given == "auto":
        return await networks.choose(requester.caller, None, auto=True)
    if not given:
        return await networks.choose(requester.caller, None)
    requester.require(ATTACH_NETWORK)
    if count > 1 and any(port.get("port") for port in given):
        raise Refused(400, "Unable to launch multiple instances with a single configured port ID.")
    if count > 1 and any(port.get("fixed_ip") for port in given):
        raise Refused(400, "Invalid fixed IP Address: it cannot be given to several servers.")
    wanted = [_wanted(port) for port in given]
    for port in wanted:
        if port.fixed_ip:
            await _guard_address(requester, port.network_id)
    return await networks.choose(requester.caller, wanted, external=requester.allows(ATTACH_EXTERNAL))


def _wanted(port: RequestedPort) -> WantedPort:
    tag = port.get("tag") or ""
    if port_id := port.get("port"):
        if port.get("fixed_ip"):
            raise Refused(400, f"Specified Fixed IP '{port['fixed_ip']}' cannot be used with port '{port_id}'")
        return WantedPort(port_id=port_id, tag=tag)
    network_id = port.get("uuid")
    if not network_id:
        raise Refused(400, "Bad network format: missing 'uuid'")
    if not re.fullmatch(r"[0-9a-fA-F-]{32,36}", network_id):
        raise Refused(400, f"Bad networks format: network uuid is not in proper format ({network_id[:40]})")
    return WantedPort(network_id=network_id, fixed_ip=port.get("fixed_ip") or "", tag=tag)


async def _guard_address(requester: Requester, network_id: str) -> None:
    """Apply the policy rule of the Network API here, since the port is made later without the user's token."""
    viewer = None if requester.caller.is_admin else requester.caller.project_id
    network = await requester.services.networks.networks.show(viewer, network_id)
    requester.require(CHOOSE_ADDRESS, project_id=owner_of(network))
