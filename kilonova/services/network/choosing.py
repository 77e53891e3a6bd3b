"""The check of a new server's requested networks, before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, or_, select

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.domain.network import WantedPort
from kilonova.records.query import find_one
from kilonova.schema.tables.network import fixed_ips, networks, security_groups
from kilonova.services.network.addresses import address_of, hosts_of, net_of
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import subnets_of, taken_by
from kilonova.services.network.groups import DEFAULT, SecurityGroups
from kilonova.services.network.kinds import NETWORK, PORT
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

_AVAILABLE = Sql(
    select(networks.c.id)
    .where(
        networks.c.external == 0,
        or_(networks.c.project_id == bindparam("project_id"), networks.c.shared == 1),
    )
    .limit(2)
)
_GROUPS = Sql(
    select(security_groups.c.id, security_groups.c.name).where(
        security_groups.c.project_id == bindparam("project_id"),
        or_(in_list(security_groups.c.id, "ids"), in_list(security_groups.c.name, "names")),
    )
)


class PortChooser:
    def __init__(self, context: NetworkContext, groups: SecurityGroups) -> None:
        self._context, self._groups = context, groups

    async def choose(
        self, caller: Caller, wanted: Sequence[WantedPort] | None, auto: bool, external: bool
    ) -> list[WantedPort]:
        async def body(tx: Tx) -> list[WantedPort]:
            if wanted is None:
                return await self._the_only_one(tx, caller.project_id, auto)
            return await self._checked(tx, caller, wanted, external)

        return await self._context.control.read(body, few=True)

    async def room(self, caller: Caller, ports: Sequence[WantedPort], least: int, most: int) -> int:
        """Return how many servers fit the quota. This is not a promise: others may be faster. A request that is surely
        too large is refused now, not by a server in ERROR."""
        each = sum(not want.port_id for want in ports)
        if not each:
            return most

        async def body(tx: Tx) -> int:
            return await self._context.quotas.room(tx, caller.project_id, PORT.name, each * most)

        servers = await self._context.control.read(body, few=True) // each
        if servers < least:
            text = f"Maximum number of ports exceeded: {each} per server, room for {servers} of {least} servers"
            raise Refused("too_many_ports", text)
        return servers

    async def _checked(self, tx: Tx, caller: Caller, wanted: Sequence[WantedPort], external: bool) -> list[WantedPort]:
        viewer = None if caller.is_admin else caller.project_id
        _refuse_doubles(wanted)
        for want in wanted:
            if want.port_id:
                await self._check_port(tx, viewer, caller.project_id, want)
            else:
                await self._check_network(tx, viewer, want, external)
        return list(wanted)

    async def _the_only_one(self, tx: Tx, project_id: str, auto: bool) -> list[WantedPort]:
        available = await tx.all(_AVAILABLE, project_id=project_id)
        if len(available) > 1:
            text = "Multiple possible networks found, use a Network ID to be more specific."
            raise Refused("network_ambiguous", text)
        if not available:
            if auto:
                text = "Unable to automatically allocate a network for project; none is set up for it."
                raise Refused("network_auto_unavailable", text)
            return []
        network_id = available[0]["id"]
        await self._check_subnets(tx, WantedPort(network_id=network_id))
        return [WantedPort(network_id=network_id)]

    async def _check_network(self, tx: Tx, viewer: str | None, want: WantedPort, external: bool) -> None:
        network = await find_one(tx, NETWORK, viewer, want.network_id)
        if network["external"] and not network["shared"] and not external:
            text = f"It is not allowed to create an interface on external network {want.network_id}"
            raise Refused("external_network_forbidden", text)
        await self._check_subnets(tx, want)

    async def _check_subnets(self, tx: Tx, want: WantedPort) -> None:
        inside = await subnets_of(tx, want.network_id)
        if not inside:
            text = f"Network {want.network_id} requires a subnet in order to boot servers on."
            raise Refused("network_needs_subnet", text)
        if not want.fixed_ip:
            return
        try:
            address = address_of(want.fixed_ip)
        except Refused:
            raise Refused("invalid_fixed_ip", f"Invalid fixed IP address {want.fixed_ip[:60]}.") from None
        for subnet in inside:
            net = net_of(subnet["cidr"])
            first, last = hosts_of(net)
            if net.version == address.version and first <= int(address) <= last:
                if str(address) == subnet["gateway_ip"]:
                    text = f"Fixed IP {address} is the gateway of subnet {subnet['id']}; no server may have it."
                    raise Refused("invalid_fixed_ip", text)
                if await rows.fetch(tx, fixed_ips, subnet_id=subnet["id"], address=str(address)) is not None:
                    raise Refused("address_in_use", f"Fixed IP address {address} is already in use.")
                return
        raise Refused(
            "invalid_fixed_ip", f"Fixed IP {address} is not a valid ip address for network {want.network_id}."
        )

    async def _check_port(self, tx: Tx, viewer: str | None, project_id: str, want: WantedPort) -> None:
        port = await find_one(tx, PORT, viewer, want.port_id)
        if port["project_id"] != project_id:
            raise Refused("port_not_usable", f"Port {want.port_id} not usable for the server: another project has it.")
        if port["device_id"]:
            raise Refused("port_in_use", f"Port {want.port_id} is still in use.")
        if not await taken_by(tx, [want.port_id]):
            raise Refused("port_needs_address", f"Port {want.port_id} requires a fixed IP in order to be used.")

    async def check_groups(self, caller: Caller, names_or_ids: Sequence[str], *, may_make: bool = True) -> list[str]:
        """Return the ids of the groups (names or ids) of the caller's own project. Its default group is created when it
        is first needed, unless `may_make` is false: then it needs no id."""
        if DEFAULT in names_or_ids and may_make:
            await self._groups.ensure_default(caller.project_id)
        wanted = [key for key in dict.fromkeys(names_or_ids) if may_make or key != DEFAULT]

        async def body(tx: Tx) -> list[str]:
            matches = await tx.all(_GROUPS, project_id=caller.project_id, ids=wanted, names=wanted)
            by_id = {row["id"] for row in matches}
            by_name: dict[str, list[str]] = {}
            for row in matches:
                by_name.setdefault(row["name"], []).append(row["id"])
            return [key if key in by_id else _the_one(key, by_name.get(key, [])) for key in wanted]

        return list(dict.fromkeys(await self._context.control.read(body))) if wanted else []


def _the_one(key: str, ids: list[str]) -> str:
    if not ids:
        raise Refused("security_group_not_found", f"Security group {key[:80]} not found.")
    if len(ids) > 1:
        text = f"Multiple security groups found matching '{key[:80]}'. Use an ID to be more specific."
        raise Refused("security_group_ambiguous", text)
    return ids[0]


def _refuse_doubles(wanted: Sequence[WantedPort]) -> None:
    """Refuse a port or address that is requested twice. A network may be: the server gets two ports there."""
    ports, addresses = set(), set()
    for want in wanted:
        if bool(want.network_id) is bool(want.port_id):
            raise Refused("bad_request", "Give either a network or a port.")
        if want.port_id and want.port_id in ports:
            raise Refused("duplicate_port", f"Port {want.port_id} is named twice.")
        if want.fixed_ip and (want.network_id, want.fixed_ip) in addresses:
            raise Refused("address_in_use", f"Fixed IP address {want.fixed_ip[:60]} is named twice.")
        ports.add(want.port_id)
        addresses.add((want.network_id, want.fixed_ip))
