"""The addresses of ports. Callers hold the lock of the network's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import fixed_ips, subnets
from kilonova.services.network import ranges
from kilonova.services.network.addresses import Address, address_of, from_mac, hosts_of, invalid, is_in_pools, net_of
from kilonova.services.network.kinds import SUBNET
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

MOST_PER_PORT = 5
AUTOMATIC = ("slaac", "dhcpv6-stateless")  # a device gives itself an address made from its MAC

Fixed = dict[str, str]  # subnet_id, ip_address

_OF_NETWORK = Sql(
    select(subnets).where(subnets.c.network_id == bindparam("network_id")).order_by(subnets.c.created_at, subnets.c.id)
)
_OF_PORTS = Sql(
    select(fixed_ips).where(in_list(fixed_ips.c.port_id, "ids")).order_by(fixed_ips.c.port_id, fixed_ips.c.position)
)
_BY_IDS = Sql(select(subnets).where(in_list(subnets.c.id, "ids")))


def is_automatic(subnet: Row) -> bool:
    return subnet["ipv6_address_mode"] in AUTOMATIC


async def subnets_of(tx: Tx, network_id: str) -> Sequence[Row]:
    return await tx.all(_OF_NETWORK, network_id=network_id)


async def addresses_of(tx: Tx, port_ids: Sequence[str]) -> dict[str, list[Fixed]]:
    by_port: dict[str, list[Fixed]] = {port_id: [] for port_id in port_ids}
    for row in await tx.all(_OF_PORTS, ids=list(port_ids)):
        by_port[row["port_id"]].append({"subnet_id": row["subnet_id"], "ip_address": row["address"]})
    return by_port


class Addressing:
    """The allocation of one port's addresses."""

    def __init__(self, tx: Tx, network_id: str, inside: Sequence[Row], port_id: str, mac: str) -> None:
        self._tx, self._network_id, self._subnets = tx, network_id, inside
        self._port_id, self._mac = port_id, mac
        self._given: list[Fixed] = []

    async def give(self, wanted: Sequence[Mapping[str, Any]] | None, *, to_router: bool = False) -> list[Fixed]:
        """Allocate the requested addresses or, without a request, one of each IP version that the network has."""
        if wanted is None:
            await self._one_of_each()
            return self._given
        if len(wanted) > MOST_PER_PORT:
            raise invalid(f"a port may have {MOST_PER_PORT} fixed ips, not {len(wanted)}.")
        for request in wanted:
            await self._as_wished(request, to_router)
        return self._given

    async def _one_of_each(self) -> None:
        for version in (4, 6):
            served = [each for each in self._subnets if each["ip_version"] == version and not is_automatic(each)]
            for subnet in served:
                address = await ranges.take_lowest(self._tx, subnet["id"])
                if address is not None:
                    await self._put(subnet, address)
                    break
            else:
                if served:
                    raise _exhausted(f"network {self._network_id}")
        for subnet in self._subnets:
            if is_automatic(subnet):
                await self._put_checked(subnet, from_mac(net_of(subnet["cidr"]), self._mac))

    async def _as_wished(self, request: Mapping[str, Any], to_router: bool) -> None:
        address = address_of(request["ip_address"]) if request.get("ip_address") else None
        subnet = self._subnet_for(request.get("subnet_id") or "", address)
        if is_automatic(subnet):
            own = from_mac(net_of(subnet["cidr"]), self._mac)
            if address not in (None, own) and not to_router:
                raise invalid(f"{address} cannot be chosen: the subnet {subnet['id']} is for automatic addresses.")
            address = address or own
        if address is not None:
            await self._put_checked(subnet, address)
            await ranges.take(self._tx, subnet["id"], address)
            return
        lowest = await ranges.take_lowest(self._tx, subnet["id"])
        if lowest is None:
            raise _exhausted(f"subnet {subnet['id']}")
        await self._put(subnet, lowest)

    def _subnet_for(self, subnet_id: str, address: Address | None) -> Row:
        if subnet_id:
            requested = next((each for each in self._subnets if each["id"] == subnet_id), None)
            if requested is None:
                raise invalid(f"the subnet {subnet_id[:80]} is not on network {self._network_id}.")
            if address is not None and not _is_usable(requested, address):
                raise Refused(
                    "invalid_ip_for_subnet", f"IP address {address} is not a valid IP for subnet {subnet_id}."
                )
            return requested
        if address is None:
            raise invalid("a fixed ip needs subnet_id or ip_address.")
        for subnet in self._subnets:
            if _is_usable(subnet, address):
                return subnet
        text = f"IP address {address} is not a valid IP for any of the subnets on network {self._network_id}."
        raise Refused("invalid_ip_for_network", text)

    async def _put_checked(self, subnet: Row, address: Address) -> None:
        if await rows.fetch(self._tx, fixed_ips, subnet_id=subnet["id"], address=str(address)) is not None:
            text = f"Unable to complete operation for network {self._network_id}. The IP address {address} is in use."
            raise Refused("address_in_use", text)
        await self._put(subnet, address)

    async def _put(self, subnet: Row, address: Address) -> None:
        fixed = {"subnet_id": subnet["id"], "address": str(address)}
        await rows.put(self._tx, fixed_ips, **fixed, port_id=self._port_id, position=len(self._given))
        self._given.append({"subnet_id": subnet["id"], "ip_address": str(address)})


def refuse_gateways(inside: Sequence[Row], wanted: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a subnet's gateway address to all but a router's interface: its owner gets all traffic that leaves the
    subnet."""
    gateways = {subnet["gateway_ip"]: subnet["id"] for subnet in inside if subnet["gateway_ip"]}
    for request in wanted:
        address = str(address_of(request["ip_address"])) if request.get("ip_address") else ""
        if address in gateways:
            text = f"IP address {address} is the gateway of subnet {gateways[address]}; only a router may have it."
            raise Refused("invalid_ip_for_subnet", text)


def _exhausted(where: str) -> Refused:
    return Refused("no_more_addresses", f"No more IP addresses available on {where}.")


def _is_usable(subnet: Row, address: Address) -> bool:
    net = net_of(subnet["cidr"])
    first, last = hosts_of(net)
    return net.version == address.version and first <= int(address) <= last


async def take_away(tx: Tx, taken: Sequence[Row | Mapping[str, str]]) -> None:
    """Free addresses (rows of fixed_ips) for the next port."""
    homes = {row["id"]: row for row in await tx.all(_BY_IDS, ids=sorted({each["subnet_id"] for each in taken}))}
    pools = {subnet_id: msgspec.json.decode(row["pools"]) for subnet_id, row in homes.items()}
    for each in taken:
        subnet_id, address = each["subnet_id"], address_of(each["address"])
        await rows.remove(tx, fixed_ips, subnet_id=subnet_id, address=each["address"])
        if not is_automatic(homes[subnet_id]) and is_in_pools(address, pools[subnet_id]):
            await ranges.give_back(tx, subnet_id, address)


async def taken_by(tx: Tx, port_ids: Sequence[str]) -> Sequence[Row]:
    return await tx.all(_OF_PORTS, ids=list(port_ids))


async def subnet_of(tx: Tx, subnet_id: str) -> Row:
    row = await rows.fetch(tx, subnets, id=subnet_id)
    if row is None:
        raise SUBNET.missing(subnet_id)
    return row
