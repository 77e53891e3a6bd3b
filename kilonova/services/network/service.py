"""The door to networks: the nouns of the API, and what servers need of them (world.Network)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kilonova.domain.caller import Caller
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import NetworkDocument
from kilonova.domain.network import Vif, WantedPort
from kilonova.records.nouns import Noun
from kilonova.services.network.choosing import PortChooser
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.floating import FloatingIps
from kilonova.services.network.groups import SecurityGroups
from kilonova.services.network.guest_ports import GuestPorts
from kilonova.services.network.host_documents import HostDocuments
from kilonova.services.network.interfaces import Interfaces
from kilonova.services.network.networks import NetworkRecords
from kilonova.services.network.outdated_servers import marked_among
from kilonova.services.network.ports import Ports
from kilonova.services.network.quotas import NetworkQuotas
from kilonova.services.network.routers import Routers
from kilonova.services.network.rules import Rules
from kilonova.services.network.seeds import prepare
from kilonova.services.network.servers import ServerPorts
from kilonova.services.network.subnets import Subnets
from kilonova.services.network.wakeups import Wakeups
from kilonova.world import Clock, Ids, Store, Tx


class Networks:
    def __init__(
        self,
        control: Store,
        clock: Clock,
        ids: Ids,
        *,
        quota_defaults: Mapping[str, int] | None = None,
        wakeups: Wakeups | None = None,
    ) -> None:
        self.quotas = NetworkQuotas(control, quota_defaults)
        self._context = NetworkContext(control, clock, ids, self.quotas, wakeups)
        self.networks = NetworkRecords(self._context)
        self.subnets = Subnets(self._context)
        self.groups = SecurityGroups(self._context)
        self.rules = Rules(self._context)
        self.ports = Ports(self._context, self.groups)
        self.routers = Routers(self._context)
        self.interfaces = Interfaces(self._context, self.routers)
        self.floating_ips = FloatingIps(self._context)
        every: Sequence[Noun[NetworkContext]] = (self.networks, self.subnets, self.ports, self.groups, self.rules)
        self.nouns = {noun.kind.name: noun for noun in (*every, self.routers, self.floating_ips)}
        self._servers = ServerPorts(self._context, self.groups)
        self._guests = GuestPorts(self._context)
        self._documents = HostDocuments(self._context)
        self._choice = PortChooser(self._context, self.groups)

    async def prepare(self, *, owner: str) -> None:
        """Create the first networks, once in a cloud's life. `owner` is the administrators' project."""
        await prepare(self._context, self.networks, self.subnets, owner)

    # -- for servers --------------------------------------------------------------------------------------------------

    async def choose(
        self, caller: Caller, wanted: Sequence[WantedPort] | None, *, auto: bool = False, external: bool = False
    ) -> list[WantedPort]:
        """Return the ports for the requested networks. None: the project's only network, if any. `external`: also on
        external networks. Raise `Refused`."""
        return await self._choice.choose(caller, wanted, auto, external)

    async def room(self, caller: Caller, ports: Sequence[WantedPort], least: int, most: int) -> int:
        """Return how many servers with such ports fit the project's quota, `most` at the most. Raise `Refused` if that
        is fewer than `least`."""
        return await self._choice.room(caller, ports, least, most)

    async def check_security_groups(
        self, caller: Caller, names_or_ids: Sequence[str], *, may_make: bool = True
    ) -> list[str]:
        return await self._choice.check_groups(caller, names_or_ids, may_make=may_make)

    async def allocate(
        self,
        fence: tuple[str, int, int],
        *,
        project_id: str,
        user_id: str,
        wanted: Sequence[WantedPort],
        security_groups: Sequence[str],
        host: str,
        availability_zone: str = "nova",
        hostname: str = "",
    ) -> list[Vif]:
        return await self._servers.allocate(
            fence,
            project_id=project_id,
            wanted=wanted,
            security_groups=security_groups,
            host=host,
            availability_zone=availability_zone,
            hostname=hostname,
        )

    async def bind(self, fence: tuple[str, int, int], *, server_id: str, host: str) -> list[Vif]:
        return await self._servers.bind(fence, server_id=server_id, host=host)

    async def release(self, fence: tuple[str, int, int], *, server_id: str) -> None:
        await self._servers.release(fence, server_id=server_id)

    async def vifs(self, server_ids: Sequence[str]) -> dict[str, list[Vif]]:
        return await self._servers.vifs(server_ids)

    async def port_states(self, server_id: str) -> dict[str, str]:
        """Return the status of a server's ports, by their ids."""
        return await self._servers.port_states(server_id)

    async def changed_vifs(self, server_ids: Sequence[str]) -> dict[str, list[Vif]]:
        """Return the ports of the servers among these whose record is out of date; one may have no ports left."""
        return await self._servers.changed_vifs(server_ids)

    async def guest_ports(self, server_ids: Sequence[str], *, members: bool = True) -> dict[str, list[GuestPort]]:
        return await self._guests.of_servers(server_ids, members=members)

    async def changed_ports(self, server_ids: Sequence[str]) -> set[str]:
        async def body(tx: Tx) -> set[str]:
            return set(await marked_among(tx, server_ids))

        return await self._context.control.read(body) if server_ids else set()

    # -- for hosts ----------------------------------------------------------------------------------------------------

    async def host_document(self, host: str, *, tunnel_address: str, is_node: bool) -> NetworkDocument:
        return await self._documents.document(host, tunnel_address=tunnel_address, is_node=is_node)
