"""Servers whose record is out of date: their ports, addresses, groups or names changed through this service.

An operation writes a server's ports into the server's own row, so that showing it needs no other query. A change made
here marks the server in the same transaction. Until an operation clears the mark, a reader of the server reads the
ports themselves. Callers hold the lock that an allocation needs too (the network's, or a group's project's), so no port
is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.schema.tables.network import changed_ports, port_groups, ports
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

_AMONG = Sql(select(changed_ports.c.server_id).where(in_list(changed_ports.c.server_id, "ids")))


def _mark(having: Select[Any]) -> Sql:
    """Return the statement that marks servers in the order of their ids, so that two writers cannot deadlock."""
    chosen = having.where(ports.c.slot >= 0).order_by(ports.c.device_id)
    return Sql(insert_unless_there(changed_ports).from_select(["server_id"], chosen).on_conflict_do_nothing())


_OF_PORTS = _mark(select(ports.c.device_id).where(in_list(ports.c.id, "ids")))
_OF_NETWORK = _mark(select(ports.c.device_id).where(ports.c.network_id == bindparam("network_id")))
_OF_GROUP = _mark(
    select(ports.c.device_id)
    .join(port_groups, port_groups.c.port_id == ports.c.id)
    .where(port_groups.c.group_id == bindparam("group_id"))
)


async def mark_ports(tx: Tx, port_ids: Sequence[str]) -> None:
    """Mark the servers of these ports before these leave them. "" is not a port. Ports without a server mark none."""
    ids = [port_id for port_id in port_ids if port_id]
    if ids:
        await tx.run(_OF_PORTS, ids=ids)


async def mark_network(tx: Tx, network_id: str) -> None:
    await tx.run(_OF_NETWORK, network_id=network_id)


async def mark_group(tx: Tx, group_id: str) -> None:
    await tx.run(_OF_GROUP, group_id=group_id)


async def marked_among(tx: Tx, server_ids: Sequence[str]) -> list[str]:
    return [row["server_id"] for row in await tx.all(_AMONG, ids=list(server_ids))]


async def unmark(tx: Tx, server_id: str) -> None:
    await rows.remove(tx, changed_ports, server_id=server_id)
