"""Real objects for the arguments of command lines, made through the SDK by the same login: those of Network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.clients.commands.shell import Shell


class Makers:
    """`of(kind)` is one object that all lines share, `new(kind)` one that a line may change or delete. Both are ids."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self._connection = shell.client.sdk_connection
        self._folder = folder
        self._numbers = itertools.count(1)
        self._octets = iter(range(2, 250))
        self._shared: dict[str, str] = {}
        self._made: dict[str, Any] = {}
        self.project_id = str(self._connection.current_project_id)
        self.user_id = str(self._connection.current_user_id)

    def of(self, kind: str) -> str:
        if kind not in self._shared:
            self._shared[kind] = self.new(kind)
        return self._shared[kind]

    def new(self, kind: str) -> str:
        maker: Callable[[], str] = getattr(self, f"_{kind}")
        return maker()

    def name(self) -> str:
        return f"N{next(self._numbers)}"


class Networks(Makers):
    def _network(self) -> str:
        network = self._connection.network.create_network(name=self.name())
        if "network" not in self._shared:  # ports of servers need a subnet
            self._connection.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.77.0.0/16")
        return str(network.id)

    def _external_network(self) -> str:
        return str(self._connection.network.find_network("public").id)

    def _external_subnet(self) -> str:
        return str(self._connection.network.get_network(self.of("external_network")).subnet_ids[0])

    def _octet(self) -> str:
        """Of an address that nobody has: they are few, the names are not."""
        return str(next(self._octets))

    def _subnet(self) -> str:
        network = self._connection.network.create_network(name=self.name())
        made = self._connection.network.create_subnet(
            network_id=network.id,
            ip_version=4,
            cidr="10.78.0.0/24",
            dns_nameservers=["10.78.0.53"],
            host_routes=[{"destination": "10.9.0.0/24", "nexthop": "10.78.0.9"}],
            allocation_pools=[{"start": "10.78.0.10", "end": "10.78.0.20"}],
        )
        return str(made.id)

    def _port(self) -> str:
        return str(self._connection.network.create_port(name=self.name(), network_id=self.of("network")).id)

    def _dressed_port(self) -> str:
        """With everything that can be taken off again."""
        made = self._connection.network.create_port(
            network_id=self.of("network"),
            fixed_ips=[{"ip_address": f"10.77.200.{self._octet()}"}],
            security_group_ids=[self.of("security_group")],
            allowed_address_pairs=[{"ip_address": "10.77.9.9"}],
            binding_profile={"a": "b"},
        )
        return str(made.id)

    def _reachable_port(self) -> str:
        """Behind a router with a gateway to the external network."""
        self._routing_router()
        network = self._connection.network.get_subnet(self._subnet_of_router()).network_id
        return str(self._connection.network.create_port(network_id=network).id)

    def _router(self) -> str:
        return str(self._connection.network.create_router(name=self.name()).id)

    def _routing_router(self) -> str:
        """With an interface, a gateway and a route."""
        router = self._router()
        self._made[router] = subnet = self._subnet()
        self._connection.network.add_interface_to_router(router, subnet_id=subnet)
        gateway = {"network_id": self.of("external_network")}
        routes = [{"destination": "10.99.0.0/24", "nexthop": "10.78.0.5"}]
        self._connection.network.update_router(router, external_gateway_info=gateway, routes=routes)
        return router

    def _interface_router(self) -> str:
        """With an interface only."""
        router = self._router()
        self._made[router] = subnet = self._subnet()
        self._connection.network.add_interface_to_router(router, subnet_id=subnet)
        return router

    def _subnet_of_router(self) -> str:
        return str(next(reversed(self._made.values())))

    def _port_of_router(self) -> str:
        router = next(reversed(self._made))
        return str(next(self._connection.network.ports(device_id=router)).id)

    def _floating_ip(self) -> str:
        return str(self._connection.network.create_ip(floating_network_id=self.of("external_network")).id)

    def _security_group(self) -> str:
        return str(self._connection.network.create_security_group(name=self.name()).id)

    def _security_rule(self) -> str:
        group = self._security_group()
        made = self._connection.network.create_security_group_rule(security_group_id=group, direction="ingress")
        return str(made.id)
