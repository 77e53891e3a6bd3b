"""Create and delete ports, for all callers that need one: the API, servers, routers, floating IPs.

Callers hold the lock of the network's row, and of the project's when security groups are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, select, update

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns
from kilonova.schema.tables.network import STANDS_FOR_A_PORT, floating_ips, port_groups, ports, tags
from kilonova.services.network.addresses import macs_for
from kilonova.services.network.fixed import Addressing, Fixed, refuse_gateways, subnets_of, take_away, taken_by
from kilonova.services.network.owners import ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Row, Tx

VIF_TYPE = "ovs"
UNBOUND = {"host": "", "vif_type": "unbound", "vif_details": "{}", "status": "DOWN"}
_BOUND = {"vif_type": VIF_TYPE, "vif_details": '{"port_filter":true}', "status": "ACTIVE"}

_TAKEN_MACS = Sql(
    select(ports.c.mac).where(ports.c.network_id == bindparam("network_id"), in_list(ports.c.mac, "macs"))
)
_ADD_GROUP = Sql(insert_row(port_groups))
_DROP_PORTS = Sql(delete(ports).where(in_list(ports.c.id, "ids")))
_DROP_GROUPS = Sql(delete(port_groups).where(in_list(port_groups.c.port_id, "ids")))
_DROP_TAGS = Sql(delete(tags).where(in_list(tags.c.record_id, "ids")))
_FREE_FLOATING = Sql(
    update(floating_ips)
    .where(in_list(floating_ips.c.port_id, "ids"), STANDS_FOR_A_PORT)
    .values(port_id="", fixed_address="", router_id="", status="DOWN")
)


def binding(host: str) -> dict[str, str]:
    """The columns that change when a port is bound to a host, or (host "") to none."""
    return {"host": host, **_BOUND} if host else dict(UNBOUND)


class NewPort(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    project_id: str
    fixed_ips: Sequence[Mapping[str, Any]] | None = None  # None: one of each IP version
    mac: str = ""  # "": one of ours
    groups: Sequence[str] = ()
    columns: Mapping[str, object] = {}  # those that differ from the usual
    to_router: bool = False


async def make_port(tx: Tx, network: Row, new: NewPort, now: float) -> list[Fixed]:
    """Create a port; return its addresses."""
    mac = await _mac(tx, network["id"], new)
    row: Columns = {
        "id": new.id,
        "project_id": new.project_id,
        "network_id": network["id"],
        "name": "",
        "description": "",
        "revision": 1,
        "created_at": now,
        "updated_at": now,
        "mac": mac,
        "device_id": "",
        "device_owner": "",
        "admin_state_up": 1,
        "port_security": network["port_security"],
        "dns_name": "",
        "address_pairs": "[]",
        "vnic_type": "normal",
        "profile": "{}",
        "slot": -1,
        "created_here": 0,
        "tag": "",
        **UNBOUND,
        **new.columns,
    }
    await rows.put_row(tx, ports, row)
    inside = await subnets_of(tx, network["id"])
    addressing = Addressing(tx, network["id"], inside, new.id, mac)
    given = await addressing.give(new.fixed_ips, to_router=new.to_router)
    if row["device_owner"] != ROUTER_INTERFACE:
        refuse_gateways(inside, new.fixed_ips or ())
    await put_groups(tx, new.id, new.groups)
    return given


async def put_groups(tx: Tx, port_id: str, groups: Sequence[str]) -> None:
    if groups:
        await tx.many(_ADD_GROUP, [{"port_id": port_id, "group_id": group_id} for group_id in groups])


async def replace_groups(tx: Tx, port_id: str, groups: Sequence[str]) -> None:
    await rows.remove(tx, port_groups, port_id=port_id)
    await put_groups(tx, port_id, groups)


async def replace_addresses(tx: Tx, port: Row, wanted: Sequence[Mapping[str, Any]], *, to_router: bool) -> None:
    """Replace the addresses of a port. It keeps those that fit the request: the same address, or any in the same
    subnet."""
    before = list(await taken_by(tx, [port["id"]]))
    addresses: list[Mapping[str, Any]] = []
    fresh: list[Mapping[str, Any]] = []
    for request in wanted:
        same = next((old for old in before if _fits(request, old)), None)
        if same is None:
            fresh.append(request)
            addresses.append(request)
        else:
            before.remove(same)
            addresses.append({"subnet_id": same["subnet_id"], "ip_address": same["address"]})
    # All are released and taken again in the requested order: the network's lock keeps others away.
    await take_away(tx, await taken_by(tx, [port["id"]]))
    inside = await subnets_of(tx, port["network_id"])
    given = await Addressing(tx, port["network_id"], inside, port["id"], port["mac"]).give(
        addresses, to_router=to_router
    )
    if port["device_owner"] != ROUTER_INTERFACE:
        refuse_gateways(inside, fresh)  # not its former ones: the gateway may have got its address later
    await _refuse_lost_floating(tx, port["id"], {fixed["ip_address"] for fixed in given})


def _fits(request: Mapping[str, Any], old: Row) -> bool:
    if request.get("subnet_id") and request["subnet_id"] != old["subnet_id"]:
        return False
    return not request.get("ip_address") or request["ip_address"].lower() == old["address"]


async def _refuse_lost_floating(tx: Tx, port_id: str, addresses: set[str]) -> None:
    for floating in await rows.fetch_all(tx, floating_ips, port_id=port_id):
        if floating["fixed_address"] not in addresses:
            text = (
                f"The floating ip {floating['address']} belongs to {floating['fixed_address']}; disassociate it first."
            )
            raise Refused("address_has_floating_ip", text)


async def drop_ports(tx: Tx, going: Sequence[Row]) -> None:
    """Delete ports with everything that belongs to them; addresses return to their pools, floating ips are
    disassociated."""
    ids = [port["id"] for port in going]
    if not ids:
        return
    await take_away(tx, await taken_by(tx, ids))
    for statement in (_DROP_GROUPS, _DROP_TAGS, _FREE_FLOATING, _DROP_PORTS):
        await tx.run(statement, ids=ids)


async def _mac(tx: Tx, network_id: str, new: NewPort) -> str:
    candidates = [new.mac] if new.mac else macs_for(new.id)
    taken = {row["mac"] for row in await tx.all(_TAKEN_MACS, network_id=network_id, macs=candidates)}
    free = [mac for mac in candidates if mac not in taken]
    if free:
        return free[0]
    if new.mac:
        text = f"Unable to complete operation for network {network_id}. The mac address {new.mac} is in use."
        raise Refused("mac_in_use", text)
    raise Refused("no_more_macs", f"Unable to generate a unique mac on network {network_id}; repeat the request.")


async def refuse_taken_mac(tx: Tx, network_id: str, mac: str) -> None:
    await _mac(tx, network_id, NewPort(id="", project_id="", mac=mac))
