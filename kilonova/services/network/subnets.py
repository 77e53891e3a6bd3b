"""Subnets, with the pools that addresses come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns
from kilonova.records.nouns import Attributes, Noun
from kilonova.records.query import find_one
from kilonova.schema.tables.network import fixed_ips, free_ranges, ports, subnets
from kilonova.services.network import ranges
from kilonova.services.network.addresses import (
    Address,
    Net,
    address_of,
    check_gateway,
    check_net,
    default_gateway,
    default_pools,
    invalid,
    is_in_pools,
    net_of,
    pools_of,
    ranges_of,
    same_version,
)
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import AUTOMATIC, is_automatic, subnets_of, take_away
from kilonova.services.network.kinds import NETWORK, SUBNET
from kilonova.services.network.locks import lock_network
from kilonova.services.network.making import drop_ports
from kilonova.services.network.networks import LEAST_MTU
from kilonova.services.network.outdated_servers import mark_ports
from kilonova.services.network.owners import DHCP, OF_ROUTERS, ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

MODE_PREFIX = 64  # the prefix length with which a device can choose its own address

_HOLDERS = Sql(
    select(ports, fixed_ips.c.address, fixed_ips.c.subnet_id)
    .select_from(fixed_ips.join(ports, ports.c.id == fixed_ips.c.port_id))
    .where(fixed_ips.c.subnet_id == bindparam("subnet_id"))
)


class Subnets(Noun[NetworkContext]):
    kind = SUBNET

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        await find_one(tx, NETWORK, viewer, request["network_id"])
        network = await lock_network(tx, request["network_id"])
        plan = _planned(request)
        net = net_of(plan["cidr"])
        if network["mtu"] < LEAST_MTU[net.version]:
            raise Refused("mtu_conflict", f"The mtu of network {network['id']} is too small for IPv{net.version}.")
        for other in await subnets_of(tx, network["id"]):
            there: Any = net_of(other["cidr"])
            if there.overlaps(net):
                text = f"Requested subnet with cidr: {net} for network: {network['id']} overlaps with another subnet"
                raise Refused("subnet_overlaps", f"Invalid input for operation: {text} ({other['id']}).")
        columns = SUBNET.columns_of({**request, **plan})
        await rows.put_row(tx, subnets, {**columns, **self.standard(record_id, request, now)})
        if plan["ipv6_address_mode"] not in AUTOMATIC:
            await ranges.fill(tx, record_id, ranges_of(plan["allocation_pools"]))

    async def locked(self, tx: Tx, record_id: str) -> Row:
        row = await rows.fetch(tx, subnets, id=record_id)
        if row is None:
            raise SUBNET.missing(record_id)
        await lock_network(tx, row["network_id"])
        return await super().locked(tx, record_id)

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        net, attributes = net_of(row["cidr"]), dict(request)
        if attributes.get("enable_dhcp"):
            check_net(net, dhcp=True)
        pools = msgspec.json.decode(row["pools"])
        if "allocation_pools" in attributes:
            pools = attributes["allocation_pools"] = pools_of(net, attributes["allocation_pools"])
            if not is_automatic(row):
                taken = [address_of(one["address"]) for one in await rows.fetch_all(tx, fixed_ips, subnet_id=row["id"])]
                await ranges.fill(tx, row["id"], ranges_of(pools, taken))
        gateway = row["gateway_ip"]
        if "gateway_ip" in attributes:
            gateway = attributes["gateway_ip"] = _gateway(net, attributes["gateway_ip"])
            if gateway != row["gateway_ip"]:
                await self._refuse_used_gateway(tx, row)
        _refuse_gateway_in_pools(gateway, pools)
        attributes = {**attributes, **_checked_lists(net, attributes)}
        return SUBNET.columns_of(attributes)

    async def _refuse_used_gateway(self, tx: Tx, row: Row) -> None:
        for holder in await tx.all(_HOLDERS, subnet_id=row["id"]):
            if holder["address"] == row["gateway_ip"] and holder["device_owner"] == ROUTER_INTERFACE:
                text = (
                    f"Current gateway ip {row['gateway_ip']} already in use by port {holder['id']}. Unable to update."
                )
                raise Refused("gateway_in_use", text)

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        """Delete the subnet with DHCP's ports. Automatic addresses end with their subnet, unless a router has one."""
        holders = await tx.all(_HOLDERS, subnet_id=row["id"])
        for holder in holders:
            may_go = holder["device_owner"] == DHCP or (is_automatic(row) and holder["device_owner"] not in OF_ROUTERS)
            if not may_go:
                text = f"Unable to complete operation on subnet {row['id']}: One or more ports have an IP allocation"
                raise Refused("subnet_in_use", f"{text} from this subnet ({holder['id']}).")
        await mark_ports(tx, [holder["id"] for holder in holders])
        await take_away(tx, [{"subnet_id": row["id"], "address": holder["address"]} for holder in holders])
        await drop_ports(tx, [holder for holder in holders if holder["device_owner"] == DHCP])
        await rows.remove(tx, free_ranges, subnet_id=row["id"])


# -- what may be asked for --------------------------------------------------------------------------------------------


class _Lists(TypedDict, total=False):
    dns_nameservers: list[str]
    host_routes: list[dict[str, str]]


class _Plan(TypedDict):
    cidr: str
    ip_version: int
    gateway_ip: str
    enable_dhcp: bool
    allocation_pools: list[dict[str, str]]
    dns_nameservers: list[str]
    host_routes: list[dict[str, str]]
    ipv6_ra_mode: str
    ipv6_address_mode: str


def _planned(request: Attributes) -> _Plan:
    """Return every attribute of a new subnet, checked."""
    net = net_of(request["cidr"])
    version = request.get("ip_version") or net.version
    same_version(net, version, "cidr")
    dhcp = request.get("enable_dhcp", True)
    check_net(net, dhcp=dhcp)
    ra_mode, address_mode = _modes(request, net, dhcp)
    gateway = _gateway(net, request["gateway_ip"]) if "gateway_ip" in request else str(default_gateway(net))
    wanted = request.get("allocation_pools")
    pools = default_pools(net, _parsed(gateway)) if wanted is None else pools_of(net, wanted)
    _refuse_gateway_in_pools(gateway, pools)
    lists = _checked_lists(net, request)
    return {
        "cidr": str(net),
        "ip_version": version,
        "gateway_ip": gateway,
        "enable_dhcp": dhcp,
        "allocation_pools": pools,
        "dns_nameservers": lists.get("dns_nameservers", []),
        "host_routes": lists.get("host_routes", []),
        "ipv6_ra_mode": ra_mode,
        "ipv6_address_mode": address_mode,
    }


def _parsed(gateway: str) -> Address | None:
    return address_of(gateway) if gateway else None


def _gateway(net: Net, wanted: str | None) -> str:
    """Return the gateway's address; "" for none."""
    if not wanted:
        return ""
    gateway = address_of(wanted, "gateway_ip")
    same_version(gateway, net.version, "gateway_ip")
    check_gateway(net, gateway)
    return str(gateway)


def _refuse_gateway_in_pools(gateway: str, pools: Sequence[Mapping[str, str]]) -> None:
    if gateway and is_in_pools(address_of(gateway), pools):
        raise Refused("gateway_in_pools", f"Gateway ip {gateway} conflicts with an allocation pool.")


def _checked_lists(net: Net, request: Attributes) -> _Lists:
    """Check the name servers and routes of the request."""
    checked: _Lists = {}
    if request.get("dns_nameservers") is not None:
        servers = [address_of(server, "dns_nameserver") for server in request["dns_nameservers"]]
        for server in servers:
            same_version(server, net.version, "dns_nameserver")
        checked["dns_nameservers"] = [str(server) for server in dict.fromkeys(servers)]
    if request.get("host_routes") is not None:
        checked["host_routes"] = [_route(net, route) for route in request["host_routes"]]
    return checked


def _route(net: Net, route: Mapping[str, str]) -> dict[str, str]:
    destination, nexthop = net_of(route["destination"], "destination"), address_of(route["nexthop"], "nexthop")
    same_version(destination, net.version, "destination")
    same_version(nexthop, net.version, "nexthop")
    return {"destination": str(destination), "nexthop": str(nexthop)}


def _modes(request: Attributes, net: Net, dhcp: bool) -> tuple[str, str]:
    """Return ipv6_ra_mode and ipv6_address_mode; "" is none."""
    ra, address = request.get("ipv6_ra_mode") or "", request.get("ipv6_address_mode") or ""
    if not ra and not address:
        return "", ""
    if net.version == 4:
        raise invalid("ipv6_ra_mode and ipv6_address_mode are for subnets of ip_version 6.")
    if not dhcp:
        raise invalid("ipv6_ra_mode and ipv6_address_mode need enable_dhcp.")
    if ra and address and ra != address:
        raise invalid(f"ipv6_ra_mode '{ra}' and ipv6_address_mode '{address}' do not go together.")
    if (ra in AUTOMATIC or address in AUTOMATIC) and net.prefixlen != MODE_PREFIX:
        raise invalid(f"'{address or ra}' needs a prefix length of {MODE_PREFIX}, not {net.prefixlen}.")
    return ra, address
