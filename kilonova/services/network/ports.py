"""Ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_list, as_object, as_text
from kilonova.records.kinds import Columns, Record, id_of
from kilonova.records.nouns import Attributes, Noun
from kilonova.records.query import find_one
from kilonova.schema.tables.network import port_groups, ports
from kilonova.services.network.addresses import address_of, invalid, mac_of, net_of
from kilonova.services.network.context import NetworkContext
from kilonova.services.network.fixed import addresses_of
from kilonova.services.network.groups import NoDefaultGroup, SecurityGroups, groups_of
from kilonova.services.network.kinds import NETWORK, PORT
from kilonova.services.network.locks import lock_network, lock_project
from kilonova.services.network.making import (
    NewPort,
    binding,
    drop_ports,
    make_port,
    refuse_taken_mac,
    replace_addresses,
    replace_groups,
)
from kilonova.services.network.outdated_servers import mark_ports
from kilonova.services.network.owners import OF_ROUTERS, OF_THE_NETWORK, ROUTER_INTERFACE
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

DOMAIN = "openstacklocal."
_GROUPS = Sql(select(port_groups).where(in_list(port_groups.c.port_id, "ids")).order_by(port_groups.c.group_id))


class Ports(Noun[NetworkContext]):
    kind = PORT

    def __init__(self, context: NetworkContext, groups: SecurityGroups) -> None:
        super().__init__(context)
        self._groups = groups

    async def dress(self, tx: Tx, records: Sequence[Record], record_rows: Sequence[Row]) -> None:
        ids = [id_of(record) for record in records]
        addresses = await addresses_of(tx, ids)
        groups: dict[str, list[str]] = {port_id: [] for port_id in ids}
        for row in await tx.all(_GROUPS, ids=ids):
            groups[row["port_id"]].append(row["group_id"])
        for record in records:
            record["fixed_ips"] = fixed_ips = addresses[id_of(record)]
            record["security_groups"] = groups[id_of(record)]
            pairs = as_list(record["allowed_address_pairs"])
            record["allowed_address_pairs"] = [_whole_pair(as_object(pair), record["mac_address"]) for pair in pairs]
            name = as_text(record["dns_name"])
            record["dns_assignment"] = [_named(name, fixed["ip_address"]) for fixed in fixed_ips]

    async def create(self, viewer: str | None, requests: Sequence[Attributes]) -> Sequence[Record]:
        try:
            return await super().create(viewer, requests)
        except NoDefaultGroup:
            for project_id in sorted({request["project_id"] for request in requests}):
                await self._groups.ensure_default(project_id)
        return await super().create(viewer, requests)

    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        await find_one(tx, NETWORK, viewer, request["network_id"])
        _refuse_router_owner(request)
        network = await lock_network(tx, request["network_id"])
        secured = request.get("port_security_enabled", bool(network["port_security"]))
        owner = request.get("device_owner") or ""
        new = NewPort(
            id=record_id,
            project_id=request["project_id"],
            fixed_ips=request.get("fixed_ips"),
            mac=mac_of(request["mac_address"]) if request.get("mac_address") else "",
            groups=await self._wanted_groups(tx, viewer, request, secured and not owner.startswith(OF_THE_NETWORK)),
            columns={**self._columns(request), "port_security": int(secured)},
        )
        if new.groups and not secured:
            raise _unsecured()
        await make_port(tx, network, new, now)

    async def _wanted_groups(self, tx: Tx, viewer: str | None, request: Attributes, by_default: bool) -> Sequence[str]:
        wanted = request.get("security_groups")
        if wanted is not None:
            return await groups_of(tx, viewer, wanted)
        if not by_default or not request["project_id"]:
            return []
        default = await lock_project(tx, request["project_id"])
        if not default:
            raise NoDefaultGroup
        return [default]

    def _columns(self, request: Attributes) -> Columns:
        """Return the columns of the request, with those that follow from them."""
        attributes = {key: value for key, value in request.items() if value is not None and key != "mac_address"}
        if "allowed_address_pairs" in attributes:
            attributes["allowed_address_pairs"] = [_pair(pair) for pair in attributes["allowed_address_pairs"]]
        columns = PORT.columns_of(attributes)
        if "host" in columns:
            columns |= binding(str(columns["host"]))
        return columns

    async def locked(self, tx: Tx, record_id: str) -> Row:
        row = await rows.fetch(tx, ports, id=record_id)
        if row is None:
            raise PORT.missing(record_id)
        if row["project_id"]:
            await lock_project(tx, row["project_id"])
        await lock_network(tx, row["network_id"])
        return await super().locked(tx, record_id)  # again: it may have changed before the lock was ours

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        if request.get("device_owner", row["device_owner"]) != row["device_owner"]:
            _refuse_router_owner(request)
        if row["device_owner"] in OF_ROUTERS and _moves(request, row):
            raise _of_a_router(row, "given to something else")
        await mark_ports(tx, [row["id"]])
        secured = request.get("port_security_enabled", bool(row["port_security"]))
        columns = self._columns({key: _or_empty(key, value) for key, value in request.items()})
        if request.get("mac_address") is not None and (mac := mac_of(request["mac_address"])) != row["mac"]:
            if row["host"]:
                text = f"Port {row['id']} is bound to a host; its mac address cannot change there."
                raise Refused("port_bound", text)
            await refuse_taken_mac(tx, row["network_id"], mac)
            columns["mac"] = mac
        if request.get("device_id", row["device_id"]) != row["device_id"]:
            columns |= {"slot": -1, "created_here": 0, "tag": ""}  # the server it was given to no longer has it
        if request.get("fixed_ips") is not None:
            to_router = row["device_owner"] == ROUTER_INTERFACE
            await replace_addresses(tx, row, request["fixed_ips"], to_router=to_router)
        await self._change_groups(tx, viewer, row, request, secured)
        return columns

    async def _change_groups(self, tx: Tx, viewer: str | None, row: Row, request: Attributes, secured: bool) -> None:
        if "security_groups" in request:
            groups = await groups_of(tx, viewer, request["security_groups"] or [])
            if groups and not secured:
                raise _unsecured()
            await replace_groups(tx, row["id"], groups)
        elif not secured and await rows.fetch(tx, port_groups, port_id=row["id"]) is not None:
            raise _unsecured()

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        if row["device_owner"] in OF_ROUTERS:
            raise _of_a_router(row, "deleted")
        await mark_ports(tx, [row["id"]])
        await drop_ports(tx, [row])


def _or_empty(key: str, value: Any) -> Any:
    """A null empties what is a list, a map or a text."""
    if value is not None:
        return value
    return {"allowed_address_pairs": [], "binding:profile": {}}.get(key, "")


def _refuse_router_owner(request: Attributes) -> None:
    """Else anybody could make a port that looks like another project's router."""
    if request.get("device_owner") in OF_ROUTERS:
        raise invalid(f"device_owner '{request['device_owner']}' comes with a router or a floating ip, not by itself.")


def _moves(request: Attributes, row: Row) -> bool:
    return any((request.get(name, row[name]) or "") != row[name] for name in ("device_id", "device_owner"))


def _of_a_router(row: Row, what: str) -> Refused:
    text = f"Port {row['id']} cannot be {what} via the port API: its device owner is {row['device_owner']}."
    return Refused("service_port_in_use", text)


def _unsecured() -> Refused:
    text = "Port security must be enabled on a port that has security groups; remove them in the same request."
    return Refused("port_security_conflict", text)


def _pair(pair: Mapping[str, str]) -> dict[str, str]:
    text = pair["ip_address"]
    address = str(net_of(text, "ip_address")) if "/" in text else str(address_of(text))
    return {"ip_address": address, **({"mac_address": mac_of(pair["mac_address"])} if pair.get("mac_address") else {})}


def _whole_pair(pair: JsonObject, mac_address: Json) -> JsonObject:
    return pair if "mac_address" in pair else {**pair, "mac_address": mac_address}


def _named(dns_name: str, address: str) -> dict[str, str]:
    host = dns_name or "host-" + address.replace(".", "-").replace(":", "-")
    fqdn = host if host.endswith(".") else f"{host}.{DOMAIN}"
    return {"ip_address": address, "hostname": host, "fqdn": fqdn}
