"""Retention: what ended long ago goes, in small batches and with the databases' own clocks (law 16).

An operation goes with its steps when it has ended everywhere. A deleted server goes when its last operation is gone:
its rows in placement, in control, its fences in every cell, and last the row that it is found by, so that a purge that
was interrupted is continued by the next one. Nothing goes of what is live, owed, in quarantine or a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, bindparam, delete, select

from kilonova.store.findings import OPEN as OPEN_FINDINGS
from kilonova.store.statements import Sql, database_time, in_list
from kilonova.store.tables import cell, control, placement
from kilonova.store.tables.journal import (
    fences,
    findings,
    idempotency_keys,
    interventions,
    operations,
    secrets,
    steps,
)
from kilonova.store.tables.network import changed_ports
from kilonova.world import Row, Store, Stores, Tx

DAY = 86400.0
LEAST_DAYS = 1.0  # that everything stays: whoever wakes up late still meets its fence (law 1)
KEY_DAYS = 7.0  # that an Idempotency-Key is remembered: longer than any client repeats a request
BATCH = 100
Counts = Counter[str]  # rows by database and table

_ENDED = database_time() - bindparam("seconds", type_=database_time.type)
_DUE = Sql(
    select(*operations.c["id", "created_at", "server_id", "parent_id"])
    .where(
        operations.c.live == 0,
        operations.c.created_at <= _ENDED,  # as it ended later: an index has this one
        operations.c.ended_at <= _ENDED,
        (operations.c.created_at > bindparam("after"))
        | ((operations.c.created_at == bindparam("after")) & (operations.c.id > bindparam("id"))),
    )
    .order_by(operations.c.created_at, operations.c.id)
    .limit(BATCH)
)
_LIVE = Sql(select(*operations.c["id", "server_id", "parent_id"]).where(operations.c.live == 1))
_KEYED = Sql(select(idempotency_keys.c.operation_id))
_FORGET_KEYS = Sql(delete(idempotency_keys).where(idempotency_keys.c.created_at < _ENDED))
_OWED = Sql(select(cell.debts.c.server_id))
_QUARANTINED = Sql(select(cell.quarantine.c.server_id).where(cell.quarantine.c.ended_at.is_(None)))
_MOVING = Sql(select(cell.migrations.c.server_id).where(cell.migrations.c.open == 1))
_WAITING = Sql(select(control.build_requests.c.server_id))
_COPIED = Sql(select(cell.copies.c.server_id).where(in_list(cell.copies.c.server_id, "servers")))
_REMEMBERED = Sql(select(operations.c.server_id).where(in_list(operations.c.server_id, "servers")))
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
_mapping = control.server_mappings
_UNPLACED = Sql(
    select(_mapping.c.server_id)
    .where(_mapping.c.queued_for_delete == 1, _mapping.c.cell.is_(None), _mapping.c.server_id > bindparam("after"))
    .where(~select(operations.c.id).where(operations.c.server_id == _mapping.c.server_id).exists())
    .order_by(_mapping.c.server_id)
    .limit(BATCH)
)
_MAPPED = Sql(
    select(_mapping.c.server_id).where(in_list(_mapping.c.server_id, "servers"), _mapping.c.queued_for_delete == 0)
)
_HOLDING = Sql(
    select(placement.allocations.c.consumer).where(in_list(placement.allocations.c.consumer, "consumers")).distinct()
)
_FORGET_LEDGER = Sql(
    delete(placement.ledger).where(
        placement.ledger.c.at < _ENDED, placement.ledger.c.consumer.not_in(select(placement.consumers.c.uuid))
    )
)


def _removal(table: Table, column: str) -> tuple[str, Sql]:
    """An open finding or a copy in quarantine is an operator's, even one that came up a moment ago."""
    removal = delete(table).where(in_list(table.c[column], "ids"))
    if table is findings:
        removal = removal.where(findings.c.open == 0)
    if table is cell.quarantine:
        removal = removal.where(cell.quarantine.c.ended_at.is_not(None))
    return table.name, Sql(removal)


_OF_OPERATIONS = [_removal(table, "operation_id") for table in (steps, secrets, interventions, findings)] + [
    _removal(operations, "id")
]
_IN_PLACEMENT = [_removal(placement.claim_fence, "server_id")]
_FENCES = [_removal(fences, "server_id")]
_IN_CONTROL = [
    _removal(table, "server_id")
    for table in (control.server_mappings, control.request_specs, changed_ports, findings, fences)
]
_IN_CELL = [
    _removal(table, "server_id")
    for table in (cell.actions, cell.action_events, cell.faults, cell.migrations, cell.quarantine, findings, fences)
] + [_removal(cell.servers, "id")]


@dataclass
class _Held:
    """What is not to go, whatever its age."""

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
        counts[f"{journal.name}.idempotency_keys"] += await _run(journal, _FORGET_KEYS, seconds=KEY_DAYS * DAY)
    held = await _read_held(stores)
    for journal in stores.journals():
        await _purge_operations(journal, seconds, held, counts)
    for name in stores.cells():
        await _purge_servers(stores, stores.cell(name), held, counts)
    await _purge_servers(stores, stores.control, held, counts)
    lines = seconds if ledger_days is None else max(ledger_days, LEAST_DAYS) * DAY
    counts[f"{stores.placement.name}.ledger"] += await _run(stores.placement, _FORGET_LEDGER, seconds=lines)
    return +counts


async def _run(store: Store, statement: Sql, **params: Any) -> int:
    async def body(tx: Tx) -> int:
        return await tx.run(statement, **params)

    return await store.write(body)


async def _read_held(stores: Stores) -> _Held:
    held = _Held()
    await _read_control(stores.control, held)
    for name in stores.cells():
        await _read_cell(stores.cell(name), held)
    held.operations.discard("")
    held.servers.discard("")
    return held


async def _read_journal(tx: Tx) -> tuple[list[str], list[str]]:
    live, left, keyed = await tx.all(_LIVE), await tx.all(OPEN_FINDINGS), await tx.all(_KEYED)
    named = [*(row["id"] for row in live), *(row["parent_id"] or "" for row in live)]
    named += [*(row["operation_id"] for row in left), *(row["operation_id"] for row in keyed)]
    return named, [row["server_id"] or "" for row in (*live, *left)]


async def _read_control(store: Store, held: _Held) -> None:
    async def body(tx: Tx) -> tuple[list[str], list[str], Sequence[Row]]:
        return *await _read_journal(tx), await tx.all(_WAITING)

    named, servers, waiting = await store.read(body)
    held.operations |= set(named)
    held.servers |= {*servers, *(row["server_id"] for row in waiting)}


async def _read_cell(store: Store, held: _Held) -> None:
    async def body(tx: Tx) -> tuple[list[str], list[str], list[Row]]:
        rows = [row for statement in (_OWED, _QUARANTINED, _MOVING) for row in await tx.all(statement)]
        return *await _read_journal(tx), rows

    named, servers, rows = await store.read(body)
    held.operations |= set(named)
    held.servers |= {*servers, *(row["server_id"] for row in rows)}


# -- operations -------------------------------------------------------------------------------------------------


async def _purge_operations(journal: Store, seconds: float, held: _Held, counts: Counts) -> None:
    after, id_ = -1.0, ""
    while True:

        async def look(tx: Tx, after: float = after, id_: str = id_) -> Sequence[Row]:
            return await tx.all(_DUE, seconds=seconds, after=after, id=id_)

        due = await journal.read(look)
        if not due:
            return
        after, id_ = due[-1]["created_at"], due[-1]["id"]
        await _remove(journal, _OF_OPERATIONS, [row["id"] for row in due if not held.has(row)], counts)


async def _remove(store: Store, removals: list[tuple[str, Sql]], ids: Collection[str], counts: Counts) -> None:
    """In one transaction."""

    async def body(tx: Tx) -> Counts:
        return Counter({f"{store.name}.{name}": await tx.run(statement, ids=list(ids)) for name, statement in removals})

    if ids:
        counts += await store.write(body)


# -- deleted servers --------------------------------------------------------------------------------------------


async def _purge_servers(stores: Stores, owner: Store, held: _Held, counts: Counts) -> None:
    """Those of a cell; those that control has are in no cell."""
    is_cell, after = owner.name != stores.control.name, ""
    while True:

        async def look(tx: Tx, after: str = after) -> list[str]:
            rows = await tx.all(_DELETED if is_cell else _UNPLACED, after=after)
            return [row["id" if is_cell else "server_id"] for row in rows]

        ids = await owner.read(look)
        if not ids:
            return
        after = ids[-1]
        gone = await _without_traces(stores, owner, set(ids) - held.servers)
        await _remove(stores.placement, _IN_PLACEMENT, gone, counts)
        for name in stores.cells():
            if name != owner.name:
                await _remove(stores.cell(name), _FENCES, gone, counts)
        await _remove(stores.control, _IN_CONTROL, gone, counts)
        if is_cell:
            await _remove(owner, _IN_CELL, gone, counts)


async def _without_traces(stores: Stores, owner: Store, servers: set[str]) -> list[str]:
    """Those that hold nothing, are mapped nowhere, and of which no journal and no other cell knows anything."""
    if not servers:
        return []
    consumers = {server: server for server in servers}
    for name in stores.cells():
        servers = servers - await _known_in(stores.cell(name), servers, consumers, is_owner=name == owner.name)

    async def in_control(tx: Tx) -> set[str]:
        listed = list(servers)
        rows = [*await tx.all(_MAPPED, servers=listed), *await tx.all(_REMEMBERED, servers=listed)]
        return {row["server_id"] for row in rows}

    async def in_placement(tx: Tx) -> set[str]:
        return {consumers[row["consumer"]] for row in await tx.all(_HOLDING, consumers=list(consumers))}

    servers = servers - await stores.control.read(in_control)
    return sorted(servers - await stores.placement.read(in_placement))


async def _known_in(store: Store, servers: set[str], consumers: dict[str, str], *, is_owner: bool) -> set[str]:
    """Also names the migrations of those servers, which may hold something as well."""

    async def body(tx: Tx) -> tuple[set[str], dict[str, str]]:
        listed = list(servers)
        known = {row["server_id"] for row in await tx.all(_COPIED, servers=listed)}
        known |= {row["server_id"] for row in await tx.all(_REMEMBERED, servers=listed)}
        if not is_owner:
            known |= {row["id"] for row in await tx.all(_THERE, servers=listed)}
        return known, {row["id"]: row["server_id"] for row in await tx.all(_MIGRATIONS, servers=listed)}

    known, moves = await store.read(body)
    consumers |= moves
    return known
