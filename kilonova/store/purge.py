"""Retention: remove what ended long ago, in small batches and by the databases' own clocks (law 16).

An operation is removed with its steps when it has ended everywhere. A deleted server is removed after its last
operation: first its mapping and its other rows in control, last the row in its cell, by which the next purge continues
an interrupted one. Its fences, in every database, are removed a day after the mapping: until then they refuse late
writers, afterwards the missing mapping does (placement/fence.py). Records that are live, owed, copied, in quarantine or
a finding stay: each batch checks again in the transaction that removes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Table, bindparam, delete, select, union

from kilonova.schema.tables import cell, control, placement
from kilonova.schema.tables.journal import (
    fences,
    findings,
    idempotency_keys,
    interventions,
    operations,
    secrets,
    steps,
)
from kilonova.schema.tables.network import changed_ports
from kilonova.store import rows
from kilonova.store.expiry import AGO, DAY, LEAST_DAYS, forget_failures, forget_keys, forget_ledger
from kilonova.store.findings import OPEN as OPEN_FINDINGS
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Stores, Tx

logger = logging.getLogger(__name__)
FENCE_SECONDS = DAY  # that fences outlive their mapping
BATCH = 100
Counts = Counter[str]  # rows by database and table

_DUE = Sql(
    select(*operations.c["id", "created_at", "server_id", "parent_id"])
    .where(
        operations.c.live == 0,
        operations.c.created_at <= AGO,  # as it ended later: an index has this one
        operations.c.ended_at <= AGO,
        (operations.c.created_at > bindparam("after"))
        | ((operations.c.created_at == bindparam("after")) & (operations.c.id > bindparam("id"))),
    )
    .order_by(operations.c.created_at, operations.c.id)
    .limit(BATCH)
)
_LIVE = Sql(select(*operations.c["id", "server_id", "parent_id"]).where(operations.c.live == 1))
_KEYED = Sql(select(idempotency_keys.c.operation_id))


def _of_servers(*selections: tuple[Table, Any]) -> Sql:
    """Return a query for those of the given servers that a row of one of the tables names under its condition."""
    return Sql(
        union(
            *(
                select(table.c.server_id).where(in_list(table.c.server_id, "servers"), condition)
                for table, condition in selections
            )
        )
    )


_EVERY = operations.c.live.is_not(None)
_IN_JOURNAL = [(operations, operations.c.live == 1), (findings, findings.c.open == 1)]
_OWED = (cell.debts, cell.debts.c.copy.is_not(None))
_QUARANTINED = (cell.quarantine, cell.quarantine.c.ended_at.is_(None))
_MOVING = (cell.migrations, cell.migrations.c.open == 1)
_COPIED = (cell.copies, cell.copies.c.copy.is_not(None))
_REQUESTED = (control.build_requests, control.build_requests.c.turn.is_not(None))
_mapping = control.server_mappings
_OWED_SERVERS = Sql(union(*(select(one.c.server_id).where(when) for one, when in (_OWED, _QUARANTINED, _MOVING))))
_REQUESTED_SERVERS = Sql(select(control.build_requests.c.server_id))
# The records that keep the operations of a server; those that keep the server itself.
_BUSY_IN_CELL = _of_servers(*_IN_JOURNAL, _OWED, _QUARANTINED, _MOVING)
_BUSY_IN_CONTROL = _of_servers(*_IN_JOURNAL, _REQUESTED)
_NEEDED_IN_CELL = _of_servers((operations, _EVERY), _IN_JOURNAL[1], _OWED, _QUARANTINED, _MOVING, _COPIED)
_NEEDED_IN_CONTROL = _of_servers(
    (operations, _EVERY), _IN_JOURNAL[1], _REQUESTED, (_mapping, _mapping.c.queued_for_delete == 0)
)
_MIGRATIONS = Sql(select(*cell.migrations.c["id", "server_id"]).where(in_list(cell.migrations.c.server_id, "servers")))
_THERE = Sql(select(cell.servers.c.id).where(in_list(cell.servers.c.id, "servers")))
_DELETED = Sql(
    select(cell.servers.c.id)
    .where(cell.servers.c.deleted == 1, cell.servers.c.id > bindparam("after"))
    .where(cell.servers.c.operation_id.is_(None))
    .where(~select(operations.c.id).where(operations.c.server_id == cell.servers.c.id).exists())
    .order_by(cell.servers.c.id)
    .limit(BATCH)
)
_UNPLACED = Sql(
    select(_mapping.c.server_id)
    .where(_mapping.c.queued_for_delete == 1, _mapping.c.cell.is_(None), _mapping.c.server_id > bindparam("after"))
    .where(~select(operations.c.id).where(operations.c.server_id == _mapping.c.server_id).exists())
    .order_by(_mapping.c.server_id)
    .limit(BATCH)
)
_unmapped = control.unmapped_servers
_UNMAPPED = Sql(
    select(_unmapped.c.server_id)
    .where(_unmapped.c.at <= AGO, _unmapped.c.server_id > bindparam("after"))
    .order_by(_unmapped.c.server_id)
    .limit(BATCH)
)
_HOLDING = Sql(
    select(placement.allocations.c.consumer).where(in_list(placement.allocations.c.consumer, "consumers")).distinct()
)


def _removal(table: Table, column: str) -> tuple[str, Sql]:
    """Return the statement that removes rows, but not open findings or copies in quarantine, even if they are only a
    moment old."""
    removal = delete(table).where(in_list(table.c[column], "ids"))
    if table is findings:
        removal = removal.where(findings.c.open == 0)
    if table is cell.quarantine:
        removal = removal.where(cell.quarantine.c.ended_at.is_not(None))
    return table.name, Sql(removal)


_OF_OPERATIONS = [_removal(table, "operation_id") for table in (steps, secrets, interventions, findings)] + [
    _removal(operations, "id")
]
_IN_CONTROL = [
    _removal(table, "server_id") for table in (control.server_mappings, control.request_specs, changed_ports, findings)
]
_IN_CELL = [
    _removal(table, "server_id")
    for table in (cell.actions, cell.action_events, cell.faults, cell.migrations, cell.quarantine, findings)
] + [_removal(cell.servers, "id")]
_CLAIM_FENCES = [_removal(placement.claim_fence, "server_id")]
_FENCES = [_removal(fences, "server_id")]
_LAST_FENCES = [*_FENCES, _removal(_unmapped, "server_id")]


@dataclass
class _Held:
    """The operations and servers that stay, whatever their age."""

    operations: set[str] = field(default_factory=set)
    servers: set[str] = field(default_factory=set)

    def has(self, row: Row) -> bool:
        return row["id"] in self.operations or row["parent_id"] in self.operations or row["server_id"] in self.servers


async def purge(stores: Stores, days: float, *, ledger_days: float | None = None) -> Counts:
    """Remove what ended that many days ago, at least one; return how many rows. It needs every database: raises
    StoreError, and the next purge goes on, when one does not answer."""
    seconds = max(days, LEAST_DAYS) * DAY
    counts: Counts = Counter()
    for journal in stores.journals():
        counts[f"{journal.name}.idempotency_keys"] += await forget_keys(journal)
    held = await _read_held(stores)
    for journal in stores.journals():
        await _purge_operations(journal, journal.name == stores.control.name, seconds, held, counts)
    for name in stores.cells():
        await _purge_servers(stores, stores.cell(name), counts)
    await _purge_servers(stores, stores.control, counts)
    await _purge_fences(stores, counts)
    counts[f"{stores.control.name}.host_failures"] += await forget_failures(stores.control, days)
    lines = days if ledger_days is None else ledger_days
    counts[f"{stores.placement.name}.ledger"] += await forget_ledger(stores.placement, lines)
    return +counts


def log_purge(days: float, counts: Counts) -> None:
    rows_by_table = " ".join(f"{table}={count}" for table, count in sorted(counts.items()))
    logger.info("purged: days=%g rows=%d tables=%s", days, counts.total(), rows_by_table)


async def _read_held(stores: Stores) -> _Held:
    """Return what any database needs of another one's operations; each batch checks its own database again."""
    held = _Held()
    for journal in stores.journals():
        is_control = journal.name == stores.control.name

        async def body(tx: Tx, is_control: bool = is_control) -> list[Sequence[Row]]:
            servers = _REQUESTED_SERVERS if is_control else _OWED_SERVERS
            return [await tx.all(statement) for statement in (_LIVE, _KEYED, OPEN_FINDINGS, servers)]

        live, keyed, left, servers = await journal.read(body)
        held.operations |= {one for row in live for one in (row["id"], row["parent_id"]) if one}
        held.operations |= {row["operation_id"] for row in (*keyed, *left)}
        held.servers |= {row["server_id"] for row in (*live, *left, *servers) if row["server_id"]}
    return held


async def _among(tx: Tx, statement: Sql, servers: Iterable[str | None]) -> set[str]:
    listed = sorted({server for server in servers if server})
    return {row["server_id"] for row in await tx.all(statement, servers=listed)} if listed else set()


async def _delete(store: Store, removals: list[tuple[str, Sql]], ids: Collection[str], tx: Tx) -> Counts:
    listed = sorted(ids)
    if not listed:
        return Counter()
    return Counter({f"{store.name}.{name}": await tx.run(statement, ids=listed) for name, statement in removals})


# -- operations -------------------------------------------------------------------------------------------------


async def _purge_operations(journal: Store, is_control: bool, seconds: float, held: _Held, counts: Counts) -> None:
    busy = _BUSY_IN_CONTROL if is_control else _BUSY_IN_CELL
    after, id_ = -1.0, ""
    while True:

        async def body(tx: Tx, after: float = after, id_: str = id_) -> tuple[Row | None, Counts]:
            due = await tx.all(_DUE, seconds=seconds, after=after, id=id_)
            if not due:
                return None, Counter()
            needed = await _among(tx, busy, [row["server_id"] for row in due])
            gone = [row["id"] for row in due if not held.has(row) and row["server_id"] not in needed]
            return due[-1], await _delete(journal, _OF_OPERATIONS, gone, tx)

        last, removed = await journal.write(body)
        counts += removed
        if last is None:
            return
        after, id_ = last["created_at"], last["id"]


# -- deleted servers --------------------------------------------------------------------------------------------


async def _purge_servers(stores: Stores, owner: Store, counts: Counts) -> None:
    """Purge the deleted servers of a cell, or those of control, which are in no cell."""
    is_cell, after = owner.name != stores.control.name, ""
    while True:

        async def look(tx: Tx, after: str = after) -> list[str]:
            batch = await tx.all(_DELETED if is_cell else _UNPLACED, after=after)
            return [row["id" if is_cell else "server_id"] for row in batch]

        ids = await owner.read(look)
        if not ids:
            return
        after = ids[-1]
        gone = await _without_traces(stores, owner, set(ids))
        gone = await _unmap(stores.control, gone, counts)
        if is_cell:
            await _remove_from_cell(owner, gone, counts)


async def _unmap(store: Store, servers: set[str], counts: Counts) -> set[str]:
    """Remove what control has of them but their fences; return those that nothing in control needs."""

    async def body(tx: Tx) -> tuple[set[str], Counts]:
        gone = servers - await _among(tx, _NEEDED_IN_CONTROL, servers)
        for server in sorted(gone):
            await rows.put(tx, control.unmapped_servers, ("at",), unless_there=True, server_id=server)
        return gone, await _delete(store, _IN_CONTROL, gone, tx)

    if not servers:
        return servers
    gone, removed = await store.write(body)
    counts += removed
    return gone


async def _remove_from_cell(store: Store, servers: set[str], counts: Counts) -> None:
    async def body(tx: Tx) -> Counts:
        gone = servers - await _among(tx, _NEEDED_IN_CELL, servers)
        return await _delete(store, _IN_CELL, gone, tx)

    if servers:
        counts += await store.write(body)


async def _without_traces(stores: Stores, owner: Store, servers: set[str]) -> set[str]:
    """Return the servers that hold nothing and that no cell needs or knows, except for the row in their own."""
    consumers = {server: server for server in servers}
    for name in stores.cells():
        servers = servers - await _known_in(stores.cell(name), servers, consumers, is_owner=name == owner.name)

    async def in_placement(tx: Tx) -> set[str]:
        return {consumers[row["consumer"]] for row in await tx.all(_HOLDING, consumers=list(consumers))}

    return servers - await stores.placement.read(in_placement)


async def _known_in(store: Store, servers: set[str], consumers: dict[str, str], *, is_owner: bool) -> set[str]:
    """Return the servers that the store still needs. Add the migrations of those servers to `consumers`: they may hold
    allocations as well."""

    async def body(tx: Tx) -> tuple[set[str], dict[str, str]]:
        listed = list(servers)
        known = await _among(tx, _NEEDED_IN_CELL, listed)
        if not is_owner:
            known |= {row["id"] for row in await tx.all(_THERE, servers=listed)}
        return known, {row["id"]: row["server_id"] for row in await tx.all(_MIGRATIONS, servers=listed)}

    known, moves = await store.read(body)
    consumers |= moves
    return known


# -- fences -----------------------------------------------------------------------------------------------------


async def _purge_fences(stores: Stores, counts: Counts) -> None:
    """Purge the fences of servers without a mapping for a day. The row that says so goes last, with control's own."""
    after = ""
    while True:

        async def look(tx: Tx, after: str = after) -> list[str]:
            return [row["server_id"] for row in await tx.all(_UNMAPPED, seconds=FENCE_SECONDS, after=after)]

        ids = await stores.control.read(look)
        if not ids:
            return
        after = ids[-1]
        of_cells = [(stores.cell(name), _FENCES) for name in stores.cells()]
        for store, removals in [(stores.placement, _CLAIM_FENCES), *of_cells, (stores.control, _LAST_FENCES)]:
            counts += await store.write(partial(_delete, store, removals, ids))
