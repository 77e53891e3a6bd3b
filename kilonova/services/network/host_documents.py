"""The network data of each host: its ports with their rules, the peers of its tunnels, and on the network node the
routers. A host gets nothing else."""

from __future__ import annotations

from collections import defaultdict
from ipaddress import ip_network

from sqlalchemy import bindparam, select

from kilonova.domain.guest_ports import HostRoute
from kilonova.domain.host_network import FloatingAddress, HostPort, HostRouter, NetworkDocument, RouterLeg
from kilonova.domain.json import decoded
from kilonova.schema.tables.network import (
    STANDS_FOR_A_PORT,
    fixed_ips,
    floating_ips,
    hosts,
    networks,
    ports,
    routers,
    subnets,
)
from kilonova.services.network.addresses import covering
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.guest_ports import GuestPorts, read_members
from kilonova.services.network.owners import ROUTER_GATEWAY, ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

_SERVERS = Sql(select(ports.c.device_id).where(ports.c.host == bindparam("host"), ports.c.slot >= 0).distinct())
_PEERS = Sql(
    select(ports.c.network_id, hosts.c.tunnel_address)
    .join(hosts, hosts.c.host == ports.c.host)
    .where(in_list(ports.c.network_id, "network_ids"), ports.c.slot >= 0, hosts.c.tunnel_address != "")
    .distinct()
)
_ROUTED = Sql(
    select(ports.c.network_id)
    .where(in_list(ports.c.network_id, "network_ids"), ports.c.device_owner == ROUTER_INTERFACE)
    .distinct()
)
_NODE = Sql(
    select(hosts.c.host, hosts.c.tunnel_address)
    .where(hosts.c.is_node == 1)
    .order_by(hosts.c.declared_at.desc(), hosts.c.host)
    .limit(1)
)
_ROUTERS = Sql(select(routers).order_by(routers.c.id))
# One row per address of a router's port.
_LEGS = Sql(
    select(
        *ports.c["id", "device_id", "device_owner", "network_id", "mac"],
        *networks.c["mtu", "network_type", "segmentation_id"],
        *fixed_ips.c["address", "position"],
        *subnets.c["cidr", "gateway_ip"],
    )
    .select_from(
        ports.join(routers, routers.c.id == ports.c.device_id)
        .join(networks, networks.c.id == ports.c.network_id)
        .join(fixed_ips, fixed_ips.c.port_id == ports.c.id)
        .join(subnets, subnets.c.id == fixed_ips.c.subnet_id)
    )
    .order_by(ports.c.id, fixed_ips.c.position)
)
_FLOATING = Sql(
    select(*floating_ips.c["router_id", "address", "fixed_address"])
    .where(STANDS_FOR_A_PORT)
    .order_by(floating_ips.c.address)
)


class HostDocuments:
    def __init__(self, context: NetworkContext) -> None:
        self._context = context
        self._guests = GuestPorts(context)

    async def document(self, host: str, *, tunnel_address: str, is_node: bool) -> NetworkDocument:
        await self._note(host, tunnel_address, is_node)

        async def servers(tx: Tx) -> list[str]:
            return [row["device_id"] for row in await tx.all(_SERVERS, host=host)]

        by_server = await self._guests.of_servers(await self._context.control.read(servers), members=False)
        mine = [HostPort(server, port) for server, of_server in sorted(by_server.items()) for port in of_server]
        groups = {rule.remote_group for one in mine for rule in one.port.rules if rule.remote_group}

        async def rest(tx: Tx) -> NetworkDocument:
            node = await tx.one(_NODE)
            here = await read_routers(tx) if node is not None and node["host"] == host else []
            used = {one.port.network_id for one in mine} | {leg.network_id for one in here for leg in one.legs}
            # Not those cached for orders: a request after a change must see the change.
            members = await read_members(tx, sorted(groups)) if groups else {}
            return NetworkDocument(
                ports=mine,
                members={group: covering(addresses) for group, addresses in sorted(members.items())},
                peers=await _peers(tx, used, node),
                routers=here,
            )

        return await self._context.control.read(rest)

    async def _note(self, host: str, tunnel_address: str, is_node: bool) -> None:
        said = {"tunnel_address": tunnel_address, "is_node": int(is_node)}

        async def known(tx: Tx) -> Row | None:
            return await rows.fetch(tx, hosts, host=host)

        row = await self._context.control.read(known, few=True)
        if row is not None and {key: row[key] for key in said} == said:
            return

        async def body(tx: Tx) -> None:
            changed = {**said, "declared_at": await tx.now()}
            await rows.put_or_change(tx, hosts, tuple(changed), host=host, **changed)

        await self._context.control.write(body)


async def _peers(tx: Tx, network_ids: set[str], node: Row | None) -> dict[str, list[str]]:
    """Return the tunnel peers by network. The network node is a peer in networks that have a router."""
    if not network_ids:
        return {}
    peers: dict[str, set[str]] = defaultdict(set)
    for row in await tx.all(_PEERS, network_ids=sorted(network_ids)):
        peers[row["network_id"]].add(row["tunnel_address"])
    if node is not None and node["tunnel_address"]:
        for row in await tx.all(_ROUTED, network_ids=sorted(network_ids)):
            peers[row["network_id"]].add(node["tunnel_address"])
    return {network_id: sorted(addresses) for network_id, addresses in sorted(peers.items())}


async def read_routers(tx: Tx) -> list[HostRouter]:
    legs: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))  # by router and port
    for row in await tx.all(_LEGS):
        legs[row["device_id"]][row["id"]].append(row)
    floating: dict[str, list[FloatingAddress]] = defaultdict(list)
    for row in await tx.all(_FLOATING):
        floating[row["router_id"]].append(FloatingAddress(row["address"], row["fixed_address"]))
    return [_router(row, list(legs[row["id"]].values()), floating[row["id"]]) for row in await tx.all(_ROUTERS)]


def _router(row: Row, legs: list[list[Row]], floating: list[FloatingAddress]) -> HostRouter:
    outside = next((same for same in legs if same[0]["device_owner"] == ROUTER_GATEWAY), None)
    four = [each for each in outside or [] if ":" not in each["address"]]
    return HostRouter(
        router_id=row["id"],
        legs=[_leg(same) for same in legs if same[0]["device_owner"] == ROUTER_INTERFACE],
        gateway=_leg(outside) if outside else None,
        next_hop=four[0]["gateway_ip"] if four else "",
        snat=bool(row["enable_snat"]),
        is_up=bool(row["admin_state_up"]),
        routes=decoded(row["routes"], list[HostRoute]),
        floating=floating,
    )


def _leg(same: list[Row]) -> RouterLeg:
    row = same[0]
    return RouterLeg(
        port_id=row["id"],
        network_id=row["network_id"],
        mac=row["mac"],
        mtu=row["mtu"],
        network_type=row["network_type"],
        segment=max(row["segmentation_id"], 0),
        addresses=[f"{each['address']}/{ip_network(each['cidr']).prefixlen}" for each in same],
    )
