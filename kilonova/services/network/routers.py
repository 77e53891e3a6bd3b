"""Routers and their way out: a port on an external network."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns, Record
from kilonova.records.nouns import Attributes, Noun
from kilonova.records.query import find_one
from kilonova.schema.tables.network import fixed_ips, floating_ips, ports, routers, subnets
from kilonova.services.network.addresses import address_of, net_of
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import addresses_of
from kilonova.services.network.kinds import NETWORK, ROUTER
from kilonova.services.network.locks import lock_network
from kilonova.services.network.making import NewPort, binding, drop_ports, make_port, replace_addresses
from kilonova.services.network.networks import ZONE
from kilonova.services.network.owners import ROUTER_GATEWAY, ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

GATEWAY_INFO = "external_gateway_info"
NONE_YET = {"gateway_network_id": "", "gateway_port_id": "", "enable_snat": 1}

_CONNECTED = Sql(
    select(
        ports.c.id.label("port_id"),
        ports.c.device_owner,
        ports.c.network_id,
        fixed_ips.c.address,
        subnets.c.id.label("subnet_id"),
        subnets.c.cidr,
    )
    .select_from(
        ports.join(fixed_ips, fixed_ips.c.port_id == ports.c.id).join(subnets, subnets.c.id == fixed_ips.c.subnet_id)
    )
    .where(ports.c.device_id == bindparam("router_id"))
)


async def connected(tx: Tx, router_id: str) -> list[Row]:
    """Return each address of the router, with its subnet."""
    addresses = await tx.all(_CONNECTED, router_id=router_id)
    return [row for row in addresses if row["device_owner"] in (ROUTER_INTERFACE, ROUTER_GATEWAY)]


class Routers(Noun[NetworkContext]):
    kind = ROUTER

    async def dress(self, tx: Tx, records: Sequence[Record], record_rows: Sequence[Row]) -> None:
        addresses = await addresses_of(tx, [row["gateway_port_id"] for row in record_rows])
        for record, row in zip(records, record_rows, strict=True):
            record["availability_zones"] = [ZONE]
            record[GATEWAY_INFO] = None
            if row["gateway_network_id"]:
                record[GATEWAY_INFO] = {
                    "network_id": row["gateway_network_id"],
                    "enable_snat": bool(row["enable_snat"]),
                    "external_fixed_ips": addresses[row["gateway_port_id"]],
                }

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        default = {"admin_state_up": True, "status": "ACTIVE", "availability_zone_hints": []}
        row = {**ROUTER.columns_of({**default, **request}), **self.standard(record_id, request, now)}
        row |= {**NONE_YET, "routes": "[]", "revision": 0}
        way_out = await self._way_out(tx, viewer, row, request.get(GATEWAY_INFO), now)
        await rows.put_row(tx, routers, {**row, **way_out, "revision": 1})

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        attributes, way_out = dict(request), {}
        if GATEWAY_INFO in attributes:
            way_out = await self._way_out(tx, viewer, row, attributes.pop(GATEWAY_INFO), self.context.clock.now())
        if "routes" in attributes:
            attributes["routes"] = await self._routes(tx, row["id"], attributes["routes"] or [])
        return ROUTER.columns_of(attributes) | way_out

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        there = await rows.fetch_all(tx, ports, device_id=row["id"])
        if any(port["device_owner"] == ROUTER_INTERFACE for port in there):
            raise Refused("router_in_use", f"Router {row['id']} still has ports")
        await self._close(tx, row)

    # -- the way out --------------------------------------------------------------------------------------------------

    async def _way_out(
        self, tx: Tx, viewer: str | None, router: Any, info: Mapping[str, Any] | None, now: float
    ) -> Columns:
        """Return the columns of the router that change. An empty request removes the gateway."""
        if not info:
            await self._close(tx, router)
            return dict(NONE_YET)
        network_id = info["network_id"]
        snat: Columns = {"enable_snat": int(info.get("enable_snat", True))}
        wanted = info.get("external_fixed_ips")
        if network_id == router["gateway_network_id"]:
            await self._change_addresses(tx, router, wanted)
            return snat
        if not (await find_one(tx, NETWORK, viewer, network_id))["external"]:
            raise Refused("bad_request", f"Bad router request: Network {network_id} is not an external network.")
        await self._close(tx, router)
        network = await lock_network(tx, network_id)
        port_id = str(uuid.uuid5(uuid.UUID(router["id"]), f"gateway {router['revision']}"))
        columns = {"device_id": router["id"], "device_owner": ROUTER_GATEWAY, **binding(""), "status": "ACTIVE"}
        # It belongs to no project: the router's owner must not see what else is on the external network.
        new = NewPort(id=port_id, project_id="", fixed_ips=wanted, columns=columns, to_router=True)
        await make_port(tx, network, new, now)
        return {"gateway_network_id": network_id, "gateway_port_id": port_id, **snat}

    async def _change_addresses(self, tx: Tx, router: Any, wanted: Sequence[Mapping[str, Any]] | None) -> None:
        port = await rows.fetch(tx, ports, id=router["gateway_port_id"])
        if wanted is not None and port is not None:
            await lock_network(tx, port["network_id"])
            await replace_addresses(tx, port, wanted, to_router=True)

    async def _close(self, tx: Tx, router: Any) -> None:
        if not router["gateway_port_id"]:
            return
        await lock_network(tx, router["gateway_network_id"])
        if await rows.fetch(tx, floating_ips, router_id=router["id"]) is not None:
            text = f"Gateway cannot be updated for router {router['id']}: a floating ip goes through it."
            raise Refused("gateway_in_use_by_floating_ip", text)
        port = await rows.fetch(tx, ports, id=router["gateway_port_id"])
        await drop_ports(tx, [port] if port is not None else [])

    async def _routes(self, tx: Tx, router_id: str, wanted: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        near = await connected(tx, router_id)
        checked = []
        for route in wanted:
            destination, nexthop = net_of(route["destination"], "destination"), address_of(route["nexthop"], "nexthop")
            if not any(nexthop in net_of(each["cidr"]) for each in near):
                raise Refused("invalid_route", f"Invalid route: the nexthop {nexthop} is on no subnet of the router.")
            if any(each["address"] == str(nexthop) for each in near):
                raise Refused("invalid_route", f"Invalid route: the nexthop {nexthop} is the router itself.")
            checked.append({"destination": str(destination), "nexthop": str(nexthop)})
        return checked
