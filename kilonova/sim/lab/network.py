"""The network of a simulated cloud: one, with a number of addresses, and ports on it that servers may be given."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.network import WantedPort
from kilonova.records.kinds import id_of
from kilonova.services.network.service import Networks

PROJECT = "demo"
FIRST = 10  # 10.0.0.10 is the first address


class Laid(msgspec.Struct, frozen=True):
    """The network's id, and the ids of the ports that exist before anything else, port1 first."""

    network: str
    ports: list[str]

    def wanted(self, count: int, given: Sequence[str] = ()) -> list[WantedPort]:
        """Return the ports that a new server requests: a number of its own ports, and existing ones."""
        return [WantedPort(network_id=self.network)] * count + [WantedPort(port_id=port) for port in given]


async def lay(networks: Networks, addresses: int, ports: int) -> Laid:
    """Create a network with these addresses, and ports that take one each."""
    owned = {"project_id": PROJECT}
    network = id_of((await networks.networks.create(None, [{**owned, "name": "net"}]))[0])
    pool = {"start": f"10.0.0.{FIRST}", "end": f"10.0.0.{FIRST + addresses - 1}"}
    subnet = {**owned, "network_id": network, "name": "subnet", "cidr": "10.0.0.0/24", "allocation_pools": [pool]}
    await networks.subnets.create(None, [subnet])
    named = [{**owned, "network_id": network, "name": f"port{number + 1}"} for number in range(ports)]
    created_ports = await networks.ports.create(None, named) if named else []
    return Laid(network, [id_of(port) for port in created_ports])
