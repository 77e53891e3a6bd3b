"""The ports of guests as their hosts need them: with the subnets of their addresses and the rules of their groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from sqlalchemy import select

from kilonova.domain.guest_ports import AddressPair, GuestPort, HostRoute, PortAddress, PortRule
from kilonova.domain.json import decoded
from kilonova.schema.tables.network import (
    fixed_ips,
    networks,
    port_groups,
    ports,
    security_group_rules,
    security_groups,
    subnets,
)
from kilonova.services.network.addresses import covering
from kilonova.services.network.context import NetworkContext
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

# A group changes with every server in it. Reading its members costs a few percent of a processor at most, however many
# they are and however often orders need them.
MEMBERS_SECONDS = 1.0  # seconds
SECONDS_PER_MEMBER = 0.0005
MOST_GROUPS = 1000

# One row per port and address; a port without addresses has one.
_PORTS = Sql(
    select(
        *ports.c["id", "device_id", "slot", "network_id", "mac", "tag", "vif_type", "vnic_type", "admin_state_up"],
        *ports.c["dns_name", "port_security", "address_pairs"],
        networks.c.name.label("network_name"),
        *networks.c["mtu", "network_type", "segmentation_id", "physical_network"],
        *fixed_ips.c["address", "subnet_id", "position"],
        *subnets.c["ip_version", "cidr", "gateway_ip", "enable_dhcp", "dns_nameservers", "host_routes"],
        *subnets.c["ipv6_ra_mode", "ipv6_address_mode"],
    )
    .select_from(
        ports.join(networks, networks.c.id == ports.c.network_id)
        .outerjoin(fixed_ips, fixed_ips.c.port_id == ports.c.id)
        .outerjoin(subnets, subnets.c.id == fixed_ips.c.subnet_id)
    )
    .where(in_list(ports.c.device_id, "server_ids"), ports.c.slot >= 0)
)
# One row per port, group and rule; a group without rules has one.
_RULES = Sql(
    select(
        port_groups.c.port_id,
        security_groups.c.name,
        *security_group_rules.c["id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max"],
        *security_group_rules.c["remote_ip_prefix", "remote_group_id", "created_at"],
    )
    .select_from(
        port_groups.join(security_groups, security_groups.c.id == port_groups.c.group_id).outerjoin(
            security_group_rules, security_group_rules.c.group_id == port_groups.c.group_id
        )
    )
    .where(in_list(port_groups.c.port_id, "port_ids"))
)
_MEMBERS = Sql(
    select(port_groups.c.group_id, fixed_ips.c.address)
    .join(fixed_ips, fixed_ips.c.port_id == port_groups.c.port_id)
    .where(in_list(port_groups.c.group_id, "group_ids"))
)
_PAIRS_OF_MEMBERS = Sql(
    select(port_groups.c.group_id, ports.c.address_pairs)
    .join(ports, ports.c.id == port_groups.c.port_id)
    .where(in_list(port_groups.c.group_id, "group_ids"), ports.c.address_pairs != "[]")
)


class GuestPorts:
    """The ports of servers. The members of remote groups are cached briefly: a group may have thousands."""

    def __init__(self, context: NetworkContext) -> None:
        self._context = context
        self._members: dict[str, tuple[float, list[str]]] = {}  # by group: until when they are kept, prefixes

    async def of_servers(self, server_ids: Sequence[str], *, members: bool) -> dict[str, list[GuestPort]]:
        """Return the ports by server, in the order of its network devices; servers without ports are left out."""

        async def body(tx: Tx) -> dict[str, list[GuestPort]]:
            by_port: dict[str, list[Row]] = defaultdict(list)
            for row in await tx.all(_PORTS, server_ids=list(server_ids)):
                by_port[row["id"]].append(row)
            groups = await self._groups(tx, list(by_port), members) if by_port else {}
            guests: dict[str, list[GuestPort]] = {}
            for same in sorted(by_port.values(), key=lambda same: same[0]["slot"]):
                names, rules = groups.get(same[0]["id"], ([], []))
                guests.setdefault(same[0]["device_id"], []).append(_port(same, names, rules))
            return guests

        return await self._context.control.read(body, few=len(server_ids) == 1) if server_ids else {}

    async def _groups(
        self, tx: Tx, port_ids: list[str], with_members: bool
    ) -> dict[str, tuple[list[str], list[PortRule]]]:
        """Return the names of the groups, and their rules, by port."""
        rule_rows = sorted(
            await tx.all(_RULES, port_ids=port_ids), key=lambda row: (row["created_at"] or 0, row["id"] or "")
        )
        remote = {row["remote_group_id"] for row in rule_rows if row["remote_group_id"]}
        members = await self._members_of(tx, remote) if with_members else {}
        by_port: dict[str, tuple[list[str], list[PortRule]]] = {}
        for row in rule_rows:
            names, rules = by_port.setdefault(row["port_id"], ([], []))
            if row["name"] not in names:
                names.append(row["name"])
            if row["id"] is not None:
                rules.append(_rule(row, members))
        return by_port

    async def _members_of(self, tx: Tx, group_ids: set[str]) -> dict[str, list[str]]:
        now = self._context.clock.monotonic()
        old = [one for one in group_ids if one not in self._members or self._members[one][0] <= now]
        if old:
            if len(self._members) > MOST_GROUPS:
                self._members.clear()
                old = list(group_ids)
            for one, addresses in (await read_members(tx, old)).items():
                seconds = max(MEMBERS_SECONDS, len(addresses) * SECONDS_PER_MEMBER)
                self._members[one] = (now + seconds, covering(addresses))
        return {one: self._members[one][1] for one in group_ids}


async def read_members(tx: Tx, group_ids: list[str]) -> dict[str, list[str]]:
    """Return the addresses of the ports in each group, and those that their owners allow besides."""
    addresses: dict[str, list[str]] = {one: [] for one in group_ids}
    for row in await tx.all(_MEMBERS, group_ids=group_ids):
        addresses[row["group_id"]].append(row["address"])
    for row in await tx.all(_PAIRS_OF_MEMBERS, group_ids=group_ids):
        addresses[row["group_id"]] += [
            pair["ip_address"] for pair in decoded(row["address_pairs"], list[dict[str, str]])
        ]
    return addresses


def _rule(row: Row, members: Mapping[str, Iterable[str]]) -> PortRule:
    group, ipv6 = row["remote_group_id"], row["ethertype"] == "IPv6"
    return PortRule(
        direction=row["direction"],
        ethertype=row["ethertype"],
        protocol=row["protocol"],
        port_min=None if row["port_range_min"] < 0 else row["port_range_min"],
        port_max=None if row["port_range_max"] < 0 else row["port_range_max"],
        remote_prefix=row["remote_ip_prefix"],
        remote_group=group,
        remote_members=[prefix for prefix in members.get(group, ()) if (":" in prefix) == ipv6],
    )


def _port(same: Sequence[Row], groups: list[str], rules: list[PortRule]) -> GuestPort:
    """`same` are the rows of one port: one for each of its addresses."""
    row = same[0]
    held = sorted((each for each in same if each["address"] is not None), key=lambda each: int(each["position"]))
    return GuestPort(
        port_id=row["id"],
        network_id=row["network_id"],
        network_name=row["network_name"],
        mac=row["mac"],
        mtu=row["mtu"],
        network_type=row["network_type"],
        segment=max(row["segmentation_id"], 0),
        physical_network=row["physical_network"],
        tag=row["tag"],
        vif_type=row["vif_type"],
        vnic_type=row["vnic_type"],
        is_up=bool(row["admin_state_up"]),
        dns_name=row["dns_name"],
        addresses=[_address(each) for each in held],
        security_groups=groups,
        port_security=bool(row["port_security"]),
        rules=rules,
        address_pairs=[
            AddressPair(address=pair["ip_address"], mac=pair.get("mac_address") or row["mac"])
            for pair in decoded(row["address_pairs"], list[dict[str, str]])
        ],
    )


def _address(row: Row) -> PortAddress:
    return PortAddress(
        address=row["address"],
        prefix=ip_network(row["cidr"]).prefixlen,
        version=row["ip_version"],
        subnet_id=row["subnet_id"],
        gateway=row["gateway_ip"],
        dns_servers=decoded(row["dns_nameservers"], list[str]),
        routes=decoded(row["host_routes"], list[HostRoute]),
        dhcp=bool(row["enable_dhcp"]),
        ra_mode=row["ipv6_ra_mode"],
        address_mode=row["ipv6_address_mode"],
    )
