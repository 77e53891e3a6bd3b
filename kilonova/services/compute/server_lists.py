"""Lists of servers: gathered from the build requests and all cells, and merged.

A cell sorts what it can by itself and gives a page; server_order.py says what that is. The servers of a cell that does
not answer are listed by their mappings, or left out; the others are listed as if nothing were wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Unreachable
from kilonova.schema.tables import control
from kilonova.services.compute.server_order import Prune, ServerOrder, ServerPage
from kilonova.store import keyset
from kilonova.store.open_stores import CELL0
from kilonova.store.server_records import FAULTS, ServerRecord, from_cell, from_mapping, from_request
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Stores, Tx

CHUNK = 1000
EVERYTHING = ServerPage(limit=1 << 60)
_REQUESTS = Sql(select(control.build_requests))
_OWN_REQUESTS = Sql(
    select(control.build_requests)
    .join(control.server_mappings, control.server_mappings.c.server_id == control.build_requests.c.server_id)
    .where(control.server_mappings.c.project_id == bindparam("project_id"))
)
_MAPPED = Sql(
    select(*control.server_mappings.c["server_id", "cell"]).where(
        in_list(control.server_mappings.c.server_id, "ids"), control.server_mappings.c.queued_for_delete == 0
    )
)
_THERE = select(control.server_mappings).where(
    control.server_mappings.c.queued_for_delete == 0,
    control.server_mappings.c.counted == 1,  # a soft-deleted one is not
    in_list(control.server_mappings.c.cell, "cells"),
)
_IN_CELLS = Sql(_THERE)
_OWN_IN_CELLS = Sql(_THERE.where(control.server_mappings.c.project_id == bindparam("project_id")))


@dataclass
class ServerQuery:
    """The filters of a list. Filters that are not on columns are in `matches`, called for each record."""

    project_id: str | None = None
    host: str | None = None
    deleted: bool | None = False  # None: both
    vm_states: frozenset[str] | None = None
    changed_since: float | None = None
    changed_before: float | None = None
    matches: Callable[[ServerRecord], bool] | None = None
    refresh: Callable[[Sequence[ServerRecord]], Awaitable[None]] | None = None  # reads further data for `matches`
    partial: bool = False  # those of a cell that does not answer too, as far as control knows them
    skips_away: bool = True  # else a cell that does not answer is an error

    def takes(self, record: ServerRecord) -> bool:
        return (
            (self.project_id is None or record.project_id == self.project_id)
            and (self.host is None or record.host == self.host)
            and (self.deleted is None or record.deleted == self.deleted)
            and (self.vm_states is None or record.vm_state in self.vm_states)
            and (self.changed_since is None or record.updated_at >= self.changed_since)
            and (self.changed_before is None or record.updated_at <= self.changed_before)
            and (self.matches is None or self.matches(record))
        )


async def page(stores: Stores, wanted: ServerQuery, order: ServerOrder, page: ServerPage) -> list[ServerRecord]:
    records, away = await _gathered(stores, wanted, order, page)
    partial = await _partial(stores, wanted, away) if away else []
    chosen = order.merged(records, partial, page.after)[: page.limit]
    await _add_faults(stores, chosen)
    return chosen


async def _gathered(
    stores: Stores, wanted: ServerQuery, order: ServerOrder, page: ServerPage
) -> tuple[list[ServerRecord], list[str]]:
    """Return the known records, and the cells that do not answer.

    Requests are read first: one that gets its cell meanwhile is then seen twice, never missed.
    """
    if page.after is not None and page.after.is_partial and not order.is_of_mappings:
        return [], [name for name in stores.cells() if stores.outage(name) is not None]  # all others came before
    by_id = {record.id: record for record in await _requested(stores, wanted)}
    away: list[str] = []
    for name, records in (await _listed_by_cell(stores, wanted, order, page)).items():
        if records is None:
            away.append(name)
        else:
            by_id |= {record.id: record for record in records}
    return list(by_id.values()), away


async def _listed_by_cell(
    stores: Stores, wanted: ServerQuery, order: ServerOrder, page: ServerPage
) -> dict[str, list[ServerRecord] | None]:
    """Read the lists of all cells concurrently. The result of a cell that does not answer is None."""

    async def listed(name: str) -> list[ServerRecord] | None:
        try:
            if order.is_of_columns:
                return await _listed(stores, stores.cell(name), wanted, order, page)
            return await _listed(stores, stores.cell(name), wanted, ServerOrder(), EVERYTHING, order.pruning(page))
        except Unreachable:
            if wanted.partial or wanted.skips_away:
                return None
            raise

    names = stores.cells()
    return dict(zip(names, await asyncio.gather(*(listed(name) for name in names)), strict=True))


async def _partial(stores: Stores, wanted: ServerQuery, cells: list[str]) -> list[ServerRecord]:
    async def body(tx: Tx) -> Sequence[Row]:
        if wanted.project_id is None:
            return await tx.all(_IN_CELLS, cells=cells)
        return await tx.all(_OWN_IN_CELLS, cells=cells, project_id=wanted.project_id)

    return [from_mapping(row) for row in await stores.control.read(body)] if wanted.partial else []


async def _requested(stores: Stores, wanted: ServerQuery) -> list[ServerRecord]:
    async def body(tx: Tx) -> Sequence[Row]:
        if wanted.project_id is None:
            return await tx.all(_REQUESTS)
        return await tx.all(_OWN_REQUESTS, project_id=wanted.project_id)

    return [record for row in await stores.control.read(body) if wanted.takes(record := from_request(row))]


async def _listed(
    stores: Stores, store: Store, wanted: ServerQuery, order: ServerOrder, page: ServerPage, prune: Prune | None = None
) -> list[ServerRecord]:
    """Return the matching records of a cell. `prune` keeps those that can still be on the page, if the cell cannot
    sort."""
    matching: list[ServerRecord] = []
    size = min(page.limit, CHUNK) if wanted.matches is None else CHUNK
    marker = order.marker_values(page.after) if page.after is not None else None
    while len(matching) < page.limit:
        chunk = await store.read(_chunk(wanted, order, marker, size))
        arrived = await _arrived(stores, store.name, [row["id"] for row in chunk if row["hidden"]])
        visible = [from_cell(store.name, row) for row in chunk if not row["hidden"] or row["id"] in arrived]
        if wanted.refresh is not None:
            await wanted.refresh(visible)
        matching += [record for record in visible if wanted.takes(record)]
        if prune is not None:
            matching = prune(matching)
        if len(chunk) < size:
            break
        marker = [chunk[-1][key.column] for key in order.keys]
    return matching


async def _arrived(stores: Stores, name: str, hidden: list[str]) -> set[str]:
    """Return the hidden servers that belong in the list: those mapped to this cell, whose request is gone, and those
    about to move to cell0. They stay hidden until a conductor is back; the others are still requests, or were deleted
    as such."""
    if not hidden:
        return set()

    async def body(tx: Tx) -> set[str]:
        return {row["server_id"] for row in await tx.all(_MAPPED, ids=hidden) if row["cell"] in (name, CELL0)}

    return await stores.control.read(body)


def _chunk(wanted: ServerQuery, order: ServerOrder, marker: Sequence[Any] | None, size: int) -> Callable[[Tx], Any]:
    deleted = None if wanted.deleted is None else int(wanted.deleted)
    by = {"project_id": wanted.project_id, "host": wanted.host, "deleted": deleted}
    keys = {name: value for name, value in by.items() if value is not None}
    span = {"changed_since": wanted.changed_since, "changed_before": wanted.changed_before}
    bounds = {name: value for name, value in span.items() if value is not None}
    statement = order.chunk(tuple(keys), tuple(bounds), marker)

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(statement, size=size, **keys, **bounds, **keyset.marker_parameters(marker or ()))

    return body


async def _add_faults(stores: Stores, records: Sequence[ServerRecord]) -> None:
    failed: dict[str, dict[str, ServerRecord]] = {}
    for record in records:
        if record.cell is not None and record.vm_state in ("error", "deleted"):
            failed.setdefault(record.cell, {})[record.id] = record
    for name, by_id in failed.items():

        async def body(tx: Tx, ids: Sequence[str] = tuple(by_id)) -> Sequence[Row]:
            return await tx.all(FAULTS, ids=list(ids))

        with contextlib.suppress(Unreachable):  # gone since the page was read; it is complete but for these
            for row in await stores.cell(name).read(body):
                by_id[row["server_id"]].fault = row  # the newest comes last
