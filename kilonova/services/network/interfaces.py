"""Add subnets to routers and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record
from kilonova.records.query import find_one
from kilonova.schema.tables.network import fixed_ips, floating_ips, ports
from kilonova.services.network.addresses import address_of, net_of
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import subnet_of, take_away, taken_by
from kilonova.services.network.kinds import PORT, SUBNET
from kilonova.services.network.locks import lock_network, lock_project
from kilonova.services.network.making import NewPort, drop_ports, make_port
from kilonova.services.network.owners import ROUTER_INTERFACE
from kilonova.services.network.routers import Routers, connected
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Body, Row, Tx

_FLOATING_BEHIND = Sql(
    select(floating_ips.c.id)
    .select_from(floating_ips.join(fixed_ips, fixed_ips.c.port_id == floating_ips.c.port_id))
    .where(
        floating_ips.c.router_id == bindparam("router_id"),
        fixed_ips.c.address == floating_ips.c.fixed_address,
        fixed_ips.c.subnet_id == bindparam("subnet_id"),
    )
    .limit(1)
)


class Interfaces:
    def __init__(self, context: NetworkContext, routers: Routers) -> None:
        self._context, self._routers = context, routers

    async def add(self, viewer: str | None, router_id: str, *, subnet_id: str = "", port_id: str = "") -> Record:
        """Exactly one of the two: the subnet's gateway address becomes the router's, or a port does."""
        new_id, now = self._context.ids.uuid(), self._context.clock.now()

        async def body(tx: Tx) -> Record:
            router = await self._routers.locked(tx, router_id)
            if port_id:
                return await self._add_port(tx, viewer, router, port_id)
            return await self._add_subnet(tx, viewer, router, subnet_id, new_id, now)

        return await self._write(body)

    async def _write(self, body: Body[Record]) -> Record:
        joined = await self._context.control.write(body)
        self._context.touched(SUBNET.name, [joined])
        return joined

    async def _add_subnet(
        self, tx: Tx, viewer: str | None, router: Row, subnet_id: str, new_id: str, now: float
    ) -> Record:
        subnet = await find_one(tx, SUBNET, viewer, subnet_id)
        if viewer not in (None, subnet["project_id"]):  # else any project could take a shared network's gateway
            text = f"Cannot add an interface to the router: subnet {subnet_id} belongs to another project."
            raise Refused("bad_request", text)
        if not subnet["gateway_ip"]:
            raise Refused("bad_request", f"Subnet {subnet_id} for a router interface must have a gateway IP.")
        await lock_project(tx, router["project_id"])
        await self._context.quotas.charge(tx, router["project_id"], PORT.name)
        network = await lock_network(tx, subnet["network_id"])
        await subnet_of(tx, subnet_id)  # still there, now that the lock is ours
        await self._refuse_overlaps(tx, router["id"], [subnet])
        new = NewPort(
            id=new_id,
            project_id=router["project_id"],
            fixed_ips=[{"subnet_id": subnet_id, "ip_address": subnet["gateway_ip"]}],
            columns={"device_id": router["id"], "device_owner": ROUTER_INTERFACE, "status": "ACTIVE"},
            to_router=True,
        )
        await make_port(tx, network, new, now)
        return _view(router, new_id, network["id"], [subnet_id])

    async def _add_port(self, tx: Tx, viewer: str | None, router: Row, port_id: str) -> Record:
        port = await find_one(tx, PORT, viewer, port_id)
        await lock_network(tx, port["network_id"])
        port = await find_one(tx, PORT, viewer, port_id)
        if port["device_id"]:
            text = f"Unable to complete operation on port {port_id}: it is attached to device {port['device_id']}."
            raise Refused("port_in_use", text)
        inside = [await subnet_of(tx, fixed["subnet_id"]) for fixed in await taken_by(tx, [port_id])]
        if not inside:
            raise Refused("bad_request", "Router port must have at least one fixed IP.")
        if sum(subnet["ip_version"] == 4 for subnet in inside) > 1:
            raise Refused("bad_request", "Cannot have multiple IPv4 subnets on a router port.")
        await self._refuse_overlaps(tx, router["id"], inside)
        columns = {"device_id": router["id"], "device_owner": ROUTER_INTERFACE, "status": "ACTIVE", "slot": -1}
        await rows.change(tx, ports, columns, id=port_id)
        return _view(router, port_id, port["network_id"], [subnet["id"] for subnet in inside])

    async def _refuse_overlaps(self, tx: Tx, router_id: str, new: Sequence[Row]) -> None:
        for there in await connected(tx, router_id):
            for subnet in new:
                if there["subnet_id"] == subnet["id"]:
                    raise Refused("bad_request", f"Router already has a port on subnet {subnet['id']}.")
                one: Any = net_of(there["cidr"])
                other: Any = net_of(subnet["cidr"])
                if one.overlaps(other):
                    text = f"Cidr {other} of subnet {subnet['id']} overlaps with {one} of subnet {there['subnet_id']}."
                    raise Refused("bad_request", text)

    async def remove(self, viewer: str | None, router_id: str, *, subnet_id: str = "", port_id: str = "") -> Record:
        """Remove an interface by port, by subnet, or by both, which must then belong together."""

        async def body(tx: Tx) -> Record:
            router = await self._routers.locked(tx, router_id)
            mine = [each for each in await connected(tx, router_id) if each["device_owner"] == ROUTER_INTERFACE]
            interfaces = [
                each
                for each in mine
                if (not port_id or each["port_id"] == port_id) and (not subnet_id or each["subnet_id"] == subnet_id)
            ]
            if not interfaces:
                text = f"Router {router_id} does not have an interface with that port or subnet."
                raise Refused("router_interface_not_found", text)
            await lock_network(tx, interfaces[0]["network_id"])
            for each in interfaces:
                await self._refuse_used(tx, router, each)
            await self._take_out(tx, interfaces, mine)
            return _view(
                router,
                interfaces[0]["port_id"],
                interfaces[0]["network_id"],
                [each["subnet_id"] for each in interfaces],
            )

        return await self._write(body)

    async def _take_out(self, tx: Tx, interfaces: Sequence[Row], mine: Sequence[Row]) -> None:
        """Remove the port, or only one of its addresses while it has others."""
        port_id = interfaces[0]["port_id"]
        if len(interfaces) < sum(each["port_id"] == port_id for each in mine):
            gone = {each["subnet_id"] for each in interfaces}
            await take_away(tx, [fixed for fixed in await taken_by(tx, [port_id]) if fixed["subnet_id"] in gone])
            return
        port = await rows.fetch(tx, ports, id=port_id)
        await drop_ports(tx, [port] if port is not None else [])

    async def _refuse_used(self, tx: Tx, router: Row, interface: Row) -> None:
        keys = {"router_id": router["id"], "subnet_id": interface["subnet_id"]}
        if await tx.one(_FLOATING_BEHIND, **keys) is not None:
            text = f"The interface on subnet {interface['subnet_id']} is required by a floating ip."
            raise Refused("interface_in_use_by_floating_ip", text)
        net = net_of(interface["cidr"])
        if any(address_of(route["nexthop"]) in net for route in msgspec.json.decode(router["routes"])):
            text = f"The interface on subnet {interface['subnet_id']} is required by a route of the router."
            raise Refused("interface_in_use_by_route", text)


def _view(router: Row, port_id: str, network_id: str, subnet_ids: list[str]) -> Record:
    return {
        "id": router["id"],
        "project_id": router["project_id"],
        "tenant_id": router["project_id"],
        "port_id": port_id,
        "network_id": network_id,
        "subnet_id": subnet_ids[-1],
        "subnet_ids": subnet_ids,
    }
