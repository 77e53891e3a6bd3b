"""Floating ips: an address of an external network that maps to the fixed address of a port behind a router."""

from __future__ import annotations

import uuid

from sqlalchemy import bindparam, or_, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns
from kilonova.records.nouns import Attributes, Noun
from kilonova.records.query import find_one
from kilonova.schema.tables.network import fixed_ips, floating_ips, free_ranges, ports, routers, subnets
from kilonova.services.network.addresses import address_of
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import taken_by
from kilonova.services.network.kinds import FLOATING_IP, NETWORK, PORT
from kilonova.services.network.locks import lock_networks
from kilonova.services.network.making import NewPort, drop_ports, make_port
from kilonova.services.network.outdated_servers import mark_ports
from kilonova.services.network.owners import FLOATING_IP as OWNER
from kilonova.services.network.owners import ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

NOBODY = {"port_id": "", "fixed_address": "", "router_id": "", "status": "DOWN"}

# The router of the project itself, else of the subnet's project. A router of a third project is never used: its owner
# could not take its interface or gateway away any more.
_ROUTER_FOR = Sql(
    select(routers.c.id)
    .select_from(
        fixed_ips.join(ports, ports.c.id == fixed_ips.c.port_id)
        .join(routers, routers.c.id == ports.c.device_id)
        .join(subnets, subnets.c.id == fixed_ips.c.subnet_id)
    )
    .where(
        fixed_ips.c.subnet_id == bindparam("subnet_id"),
        ports.c.device_owner == ROUTER_INTERFACE,
        routers.c.gateway_network_id == bindparam("network_id"),
        or_(routers.c.project_id == bindparam("project_id"), routers.c.project_id == subnets.c.project_id),
    )
    .order_by(routers.c.project_id != bindparam("project_id"), routers.c.id)
    .limit(1)
)
_SUBNETS_V4 = Sql(
    select(subnets.c.id)
    .where(subnets.c.network_id == bindparam("network_id"), subnets.c.ip_version == 4)
    .order_by(subnets.c.created_at, subnets.c.id)
)


class FloatingIps(Noun[NetworkContext]):
    kind = FLOATING_IP

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        network_id = request["floating_network_id"]
        external = await find_one(tx, NETWORK, viewer, network_id)
        if not external["external"]:
            text = f"Bad floatingip request: Network {network_id} is not a valid external network."
            raise Refused("bad_request", text)
        target = await self._lock_all(tx, viewer, network_id, request.get("port_id") or "")
        owner = record_id, request["project_id"]
        own_id = str(uuid.uuid5(uuid.UUID(record_id), "port"))
        address = await self._take_address(tx, external, own_id, record_id, request, now)
        await rows.put_row(
            tx,
            floating_ips,
            {
                **self.standard(record_id, request, now),
                "network_id": network_id,
                "address": address,
                "own_port_id": own_id,
                "dns_name": request.get("dns_name") or "",
                "dns_domain": request.get("dns_domain") or "",
                **await self._standing_for(tx, network_id, target, request.get("fixed_ip_address") or "", owner),
            },
        )

    async def _lock_all(
        self, tx: Tx, viewer: str | None, network_id: str, port_id: str, old_id: str = ""
    ) -> Row | None:
        """Lock the external network and those of the new and the old port, so that neither the route nor a port is
        removed meanwhile. Mark the servers of both ports as outdated. Return the new port."""
        old = await rows.fetch(tx, ports, id=old_id) if old_id else None
        port = await find_one(tx, PORT, viewer, port_id) if port_id else None
        await lock_networks(tx, [network_id, *(each["network_id"] for each in (old, port) if each is not None)])
        await mark_ports(tx, [port_id, old_id])
        return await find_one(tx, PORT, viewer, port_id) if port_id else None

    async def _take_address(
        self, tx: Tx, external: Row, own_id: str, record_id: str, request: Attributes, now: float
    ) -> str:
        """Allocate the address by a port of the external network that belongs to no project."""
        wanted: dict[str, str] = {}
        if request.get("subnet_id"):
            wanted["subnet_id"] = request["subnet_id"]
        if request.get("floating_ip_address"):
            wanted["ip_address"] = str(address_of(request["floating_ip_address"], "floating_ip_address"))
        wanted = wanted or {"subnet_id": await self._with_room(tx, external["id"])}
        columns = {"device_id": record_id, "device_owner": OWNER, "status": "ACTIVE"}
        new = NewPort(id=own_id, project_id="", fixed_ips=[wanted], columns=columns)
        address = (await make_port(tx, external, new, now))[0]["ip_address"]
        if ":" in address:
            raise Refused("bad_request", f"Bad floatingip request: {address} is not an IPv4 address.")
        return address

    async def _with_room(self, tx: Tx, network_id: str) -> str:
        """Return the first IPv4 subnet with a free address; if all are full, any of them, whose allocation then
        fails."""
        inside = await tx.all(_SUBNETS_V4, network_id=network_id)
        if not inside:
            text = f"Bad floatingip request: Network {network_id} does not contain any IPv4 subnet."
            raise Refused("bad_request", text)
        for subnet in inside:
            if await rows.fetch(tx, free_ranges, subnet_id=subnet["id"]) is not None:
                break
        chosen: str = subnet["id"]
        return chosen

    async def _standing_for(
        self, tx: Tx, network_id: str, port: Row | None, address: str, owner: tuple[str, str]
    ) -> Columns:
        """Return the columns of the association; empty without a port. `owner`: the floating ip and its project."""
        record_id, project_id = owner
        if port is None:
            if address:
                raise Refused("bad_request", "Bad floatingip request: fixed_ip_address needs port_id.")
            return dict(NOBODY)
        fixed = await self._chosen(tx, port, str(address_of(address)) if address else "")
        ends = {"subnet_id": fixed["subnet_id"], "network_id": network_id}
        router = await tx.one(_ROUTER_FOR, **ends, project_id=project_id)
        if router is None:
            text = f"External network {network_id} is not reachable from subnet {fixed['subnet_id']}."
            raise Refused(
                "external_network_unreachable", f"{text} Therefore, cannot associate port {port['id']} with it."
            )
        other = await rows.fetch(tx, floating_ips, port_id=port["id"], fixed_address=fixed["address"])
        if other is not None and other["id"] != record_id:
            text = f"Cannot associate with port {port['id']}: {fixed['address']} already has a floating ip."
            raise Refused("floating_ip_port_in_use", text)
        keys = {"port_id": port["id"], "fixed_address": fixed["address"]}
        return {**keys, "router_id": router["id"], "status": "ACTIVE"}

    async def _chosen(self, tx: Tx, port: Row, address: str) -> Row:
        fours = [fixed for fixed in await taken_by(tx, [port["id"]]) if ":" not in fixed["address"]]
        fours = [fixed for fixed in fours if address in ("", fixed["address"])]
        if not fours:
            raise Refused("bad_request", f"Port {port['id']} has no fixed IPv4 address {address or 'at all'}.")
        if len(fours) > 1:
            raise Refused("bad_request", f"Port {port['id']} has several fixed IPv4 addresses; give fixed_ip_address.")
        return fours[0]

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        columns = FLOATING_IP.columns_of(
            {key: value for key, value in request.items() if key in ("description", "dns_name")}
        )
        if "port_id" in request or request.get("fixed_ip_address"):
            port_id = request["port_id"] if "port_id" in request else row["port_id"]
            port = await self._lock_all(tx, viewer, row["network_id"], port_id or "", row["port_id"])
            address = request.get("fixed_ip_address") or ""
            columns |= await self._standing_for(tx, row["network_id"], port, address, (row["id"], row["project_id"]))
        return columns

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        await self._lock_all(tx, viewer, row["network_id"], "", row["port_id"])
        port = await rows.fetch(tx, ports, id=row["own_port_id"])
        await drop_ports(tx, [port] if port is not None else [])
