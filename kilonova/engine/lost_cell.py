"""Rebuild the records of a lost cell in the empty database that replaces it: `kilonova db lost` (law 15).

Control knows its servers and hosts, placement their allocations. Hosts report the guests: a guest on the host that has
the server's claim is adopted (hosts/lost_guests.py); every other guest goes to quarantine.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from sqlalchemy import bindparam, select

from kilonova.engine.restored import TURNS
from kilonova.engine.restored_hosts import record_hosts
from kilonova.engine.restored_records import record_missing
from kilonova.quota.usage import count_server
from kilonova.schema.tables.control import server_mappings
from kilonova.schema.tables.journal import operations
from kilonova.store.lost_databases import admit_replacement
from kilonova.store.open_stores import OpenStores
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

logger = logging.getLogger(__name__)
_MAPPED = Sql(
    select(server_mappings.c.server_id)
    .where(server_mappings.c.cell == bindparam("cell"), server_mappings.c.queued_for_delete == 0)
    .order_by(server_mappings.c.server_id)
)
# `place` owns these: it puts them into the cell itself, as it goes on (hand_over).
_BEING_PLACED = Sql(select(operations.c.server_id).where(operations.c.live == 1, operations.c.server_id.is_not(None)))


class Remade(NamedTuple):
    servers: int
    hosts: int
    unrecorded: int  # servers whose request spec is missing, too


async def remake(stores: OpenStores, replacement: Row) -> Remade:
    """Put the records of servers and hosts into the new database, then let every process use it. Repeating it is
    harmless: existing records stay."""
    name: str = replacement["name"]

    async def mapped(tx: Tx) -> list[str]:
        placing = {row["server_id"] for row in await tx.all(_BEING_PLACED)}
        return [row["server_id"] for row in await tx.all(_MAPPED, cell=name) if row["server_id"] not in placing]

    servers = await stores.control.read(mapped)
    hosts = await record_hosts(stores, name)
    recorded = await record_missing(stores, name, servers, replacement["era"] * TURNS, reports_decide=True)

    async def admit(tx: Tx) -> None:
        for server in servers:  # it is unknown which of them were soft-deleted
            await count_server(tx, server)
        await admit_replacement(tx, replacement)

    await stores.control.write(admit)
    text = "cell made again: cell=%s era=%d servers=%d hosts=%d"
    logger.warning(text, name, replacement["era"], recorded, hosts)
    return Remade(recorded, hosts, len(servers) - recorded)
