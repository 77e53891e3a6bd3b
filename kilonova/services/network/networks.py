"""Networks."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, exists, select

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns, Record, id_of
from kilonova.records.nouns import Attributes, Noun
from kilonova.schema.tables.network import floating_ips, free_ranges, networks, ports, routers, subnets, tags
from kilonova.services.network.addresses import invalid
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.kinds import NETWORK
from kilonova.services.network.locks import lock_network, lock_project
from kilonova.services.network.making import drop_ports
from kilonova.services.network.outdated_servers import mark_network
from kilonova.services.network.owners import DHCP
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

MTU = 1500
TUNNELLED_MTU = 1450  # the rest of it under VXLAN
LEAST_MTU = {4: 68, 6: 1280}
ZONE = "nova"
WITH_PHYSICAL = ("flat", "vlan")
SEGMENTS = {"vlan": (1, 4094), "vxlan": (1, 16777215), "geneve": (1, 16777215), "gre": (1, 2147483647)}

_USED, _NEXT = networks.alias("used"), networks.alias("next")
_SUBNETS = Sql(
    select(subnets.c.id, subnets.c.network_id)
    .where(in_list(subnets.c.network_id, "ids"))
    .order_by(subnets.c.created_at, subnets.c.id)
)
# The first number after a used one, with one more number free.
_NEXT_SEGMENT = Sql(
    select((_USED.c.segmentation_id + 1).label("number"))
    .where(
        _USED.c.network_type == bindparam("network_type"),
        _USED.c.physical_network == bindparam("physical_network"),
        _USED.c.segmentation_id < bindparam("most"),
        ~exists().where(
            _NEXT.c.network_type == _USED.c.network_type,
            _NEXT.c.physical_network == _USED.c.physical_network,
            _NEXT.c.segmentation_id == _USED.c.segmentation_id + 1,
        ),
    )
    .order_by(_USED.c.segmentation_id)
    .limit(1)
)
_OF_OTHERS = Sql(
    select(ports.c.id)
    .where(
        ports.c.network_id == bindparam("network_id"),
        ports.c.project_id != bindparam("project_id"),
        ports.c.project_id != "",
    )
    .limit(1)
)


class NetworkRecords(Noun[NetworkContext]):
    kind = NETWORK

    async def dress(self, tx: Tx, records: Sequence[Record], record_rows: Sequence[Row]) -> None:
        inside: dict[str, list[str]] = {id_of(record): [] for record in records}
        for row in await tx.all(_SUBNETS, ids=list(inside)):
            inside[row["network_id"]].append(row["id"])
        for record in records:
            record["subnets"] = within = inside[id_of(record)]
            record["availability_zones"] = [ZONE] if within else []

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        default = {
            "admin_state_up": True,
            "status": "ACTIVE",
            "shared": False,
            "router:external": False,
            "port_security_enabled": True,
            "dns_domain": "",
            "availability_zone_hints": [],
        }
        segment = _segment(request)
        default["mtu"] = TUNNELLED_MTU if segment["provider:network_type"] == "vxlan" else MTU
        columns = NETWORK.columns_of({**default, **request, **segment})
        if columns["network_type"] in SEGMENTS:
            await lock_project(tx, "")  # segments belong to no project: all that allocate one wait here
            if columns["segmentation_id"] == -1:
                columns["segmentation_id"] = await self._free_segment(tx, columns)
            await self._refuse_taken_segment(tx, columns)
        await rows.put_row(tx, networks, {**columns, **self.standard(record_id, request, now)})

    async def _free_segment(self, tx: Tx, columns: Columns) -> int:
        kind, physical = str(columns["network_type"]), columns["physical_network"]
        least, most = SEGMENTS[kind]
        first = rows.fetch(tx, networks, network_type=kind, physical_network=physical, segmentation_id=least)
        if await first is None:
            return least
        row = await tx.one(_NEXT_SEGMENT, network_type=kind, physical_network=physical, most=most)
        if row is None:
            text = f"Unable to create the network. No {kind} segment is available."
            raise Refused("no_network_available", text)
        return int(row["number"])

    async def _refuse_taken_segment(self, tx: Tx, columns: Columns) -> None:
        kind, physical, number = (columns[key] for key in ("network_type", "physical_network", "segmentation_id"))
        there = rows.fetch(tx, networks, network_type=kind, physical_network=physical, segmentation_id=number)
        if await there is not None:
            text = f"The segment {number} of {kind} is in use by another network."
            raise Refused("segment_in_use", text)

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        unshared = request.get("shared") is False and row["shared"]
        if unshared and await tx.one(_OF_OTHERS, network_id=row["id"], project_id=row["project_id"]) is not None:
            text = f"Network {row['name'] or row['id']} is used by other projects; it stays shared."
            raise Refused("shared_in_use", text)
        if request.get("router:external") is False:
            used = await rows.fetch(tx, routers, gateway_network_id=row["id"])
            if used is not None or await rows.fetch(tx, floating_ips, network_id=row["id"]) is not None:
                text = f"External network {row['id']} has routers or floating ips; it stays external."
                raise Refused("external_in_use", text)
        if "mtu" in request:
            for subnet in await rows.fetch_all(tx, subnets, network_id=row["id"]):
                if request["mtu"] < (least := LEAST_MTU[subnet["ip_version"]]):
                    raise Refused("mtu_conflict", f"Network {row['id']} has a subnet that needs an mtu of {least}.")
        if request.get("name", row["name"]) != row["name"]:
            await mark_network(tx, row["id"])
        return NETWORK.columns_of(request)

    async def locked(self, tx: Tx, record_id: str) -> Row:
        return await lock_network(tx, record_id)

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        """Delete the network. Ports that no user created (DHCP's, and of unassociated floating ips) are deleted too;
        with any other port the network stays. The gateway of the router that an associated one goes through is such a
        port."""
        inside = await rows.fetch_all(tx, floating_ips, network_id=row["id"])
        own = {floating["own_port_id"] for floating in inside}
        there = await rows.fetch_all(tx, ports, network_id=row["id"])
        used = [port["id"] for port in there if port["device_owner"] != DHCP and port["id"] not in own]
        if used:
            text = f"Network {row['id']} stays. There are one or more ports still in use on the network"
            raise Refused("network_in_use", f"{text}, the first of them: {', '.join(used[:20])}.")
        await drop_ports(tx, there)
        for floating in inside:
            await rows.remove(tx, tags, record_id=floating["id"])
        await rows.remove(tx, floating_ips, network_id=row["id"])
        for subnet in await rows.fetch_all(tx, subnets, network_id=row["id"]):
            await rows.remove(tx, free_ranges, subnet_id=subnet["id"])
            await rows.remove(tx, tags, record_id=subnet["id"])
        await rows.remove(tx, subnets, network_id=row["id"])


def _segment(request: Attributes) -> Columns:
    """Return the provider's attributes, complete. Raise `Refused` if they contradict each other.

    By default a network is a tunnel, because its servers are on many hosts, and an external network is local.
    """
    kind = request.get("provider:network_type") or ("local" if request.get("router:external") else "vxlan")
    physical = request.get("provider:physical_network") or ""
    number = request.get("provider:segmentation_id")
    if bool(physical) is not (kind in WITH_PHYSICAL):
        need = "needs" if kind in WITH_PHYSICAL else "takes no"
        raise invalid(f"provider:network_type '{kind}' {need} provider:physical_network.")
    if number is not None:
        least, most = SEGMENTS.get(kind, (0, -1))
        if not least <= number <= most:
            raise invalid(f"provider:segmentation_id {number} is out of range for provider:network_type '{kind}'.")
    return {
        "provider:network_type": kind,
        "provider:physical_network": physical,
        "provider:segmentation_id": number,
    }
