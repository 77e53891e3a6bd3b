"""The journals as readers see them: operations newest first, over control and all cells that answer.

A create has two rows of one id, `place` in control and `build` in a cell (law 5); a rebuild from cell0 has one there
before them (law 6). It is listed once, by the newest one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Integer, and_, bindparam, or_, select

from kilonova.domain.errors import Unreachable
from kilonova.domain.json import json_object
from kilonova.schema.tables.cell import action_events, actions
from kilonova.schema.tables.journal import operations, steps
from kilonova.store.open_stores import CELL0
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Stores, Tx

_STEPS = Sql(select(steps).where(steps.c.operation_id == bindparam("id")).order_by(steps.c.ordinal))
_ACTIONS = Sql(select(actions).where(actions.c.operation_id == bindparam("id")).order_by(actions.c.number))
_EVENTS = Sql(
    select(action_events).where(action_events.c.operation_id == bindparam("id")).order_by(action_events.c.position)
)
_OF_SERVER = Sql(select(*operations.c["id", "kind", "turn"]).where(operations.c.server_id == bindparam("server")))
ONE_AFTER_ANOTHER = ("rebuild_in_cell0", "place", "build")  # of one id
_WITH_IDS = Sql(select(operations).where(in_list(operations.c.id, "ids")))


@dataclass(frozen=True)
class Journaled:
    """A row of a journal, and its journal."""

    journal: Store
    row: Row

    @property
    def key(self) -> tuple[float, str]:
        return self.row["created_at"], self.row["id"]


@cache
def _page(by: tuple[str, ...], after_marker: bool) -> Sql:
    where: list[Any] = [operations.c[column] == bindparam(column) for column in by]
    if after_marker:
        same = and_(operations.c.created_at == bindparam("before"), operations.c.id < bindparam("before_id"))
        where.append(or_(operations.c.created_at < bindparam("before"), same))
    ordered = select(operations).where(*where).order_by(operations.c.created_at.desc(), operations.c.id.desc())
    return Sql(ordered.limit(bindparam("chunk", type_=Integer)))


@dataclass
class _Cursor:
    """A journal, read in chunks from the newest row on."""

    stores: Stores
    journal: Store
    by: dict[str, str]
    chunk: int
    before: tuple[float, str] | None
    read: list[Row] = field(default_factory=list)
    ended: bool = False

    async def head(self) -> Row | None:
        while not self.read and not self.ended:
            chunk = await self._next_chunk()
            self.ended = len(chunk) < self.chunk
            if chunk:
                self.before = chunk[-1]["created_at"], chunk[-1]["id"]
            continued = await _continued(self.stores, chunk)
            self.read = [row for row in chunk if (row["id"], row["kind"]) not in continued]
        return self.read[0] if self.read else None

    async def _next_chunk(self) -> Sequence[Row]:
        statement = _page(tuple(self.by), self.before is not None)
        marker = {} if self.before is None else {"before": self.before[0], "before_id": self.before[1]}

        async def body(tx: Tx) -> Sequence[Row]:
            return await tx.all(statement, **self.by, **marker, chunk=self.chunk)

        try:
            return await self.journal.read(body)
        except Unreachable:
            return ()


async def page(
    stores: Stores, *, by: dict[str, str], before: tuple[float, str] | None, limit: int
) -> list[list[Journaled]]:
    """`by` names columns and their values. Each element has all rows of one operation, oldest journal first."""
    cursors = [_Cursor(stores, journal, by, limit + 1, before) for journal in stores.journals()]
    newest_first: list[Journaled] = []
    while len(newest_first) < limit:
        heads = [Journaled(c.journal, head) for c in cursors if (head := await c.head()) is not None]
        if not heads:
            break
        newest = max(heads, key=lambda one: one.key)
        next(c for c in cursors if c.journal is newest.journal).read.pop(0)
        newest_first.append(newest)
    return await _with_earlier(stores, newest_first)


async def _with_earlier(stores: Stores, operations: list[Journaled]) -> list[list[Journaled]]:
    placings = await _with_ids(stores.control, [one.row["id"] for one in operations if one.row["kind"] == "build"])
    placed = placings | {one.row["id"]: one.row for one in operations if one.row["kind"] == "place"}
    unburied: dict[str, Row] = {}
    with contextlib.suppress(Unreachable):
        left = [id_ for id_, row in placed.items() if json_object(row["facts"]).get("from_cell0")]
        unburied = await _with_ids(stores.cell(CELL0), left)
    whole = []
    for one in operations:
        before = [(stores.cell(CELL0), unburied), (stores.control, placings)]
        earlier = [Journaled(journal, rows[one.row["id"]]) for journal, rows in before if one.row["id"] in rows]
        whole.append([*earlier, one])
    return whole


async def find(stores: Stores, operation_id: str) -> list[Journaled]:
    """Return all rows of an operation, oldest journal first; empty if there are none."""
    journaled, away = [], None
    for journal in stores.journals():
        try:
            known = await _with_ids(journal, [operation_id])
        except Unreachable as why:
            away = why
            continue
        journaled += [Journaled(journal, row) for row in known.values()]
    journaled.sort(key=lambda one: _order_of(one.row["kind"]))
    if away is not None and (not journaled or _is_continued(journaled[-1].row)):
        raise away  # the rest of it, or all, may be there
    return journaled


def _is_continued(row: Row) -> bool:
    return row["kind"] == "place" and bool(json_object(row["facts"]).get("handed_over"))


async def operations_by_turn(stores: Stores, server: str) -> dict[int, tuple[str, str]]:
    """Id and kind of the operation that had each turn of the server."""

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OF_SERVER, server=server)

    by_turn: dict[int, tuple[str, str]] = {}
    for journal in stores.journals():
        with contextlib.suppress(Unreachable):
            by_turn |= {row["turn"]: (row["id"], row["kind"]) for row in await journal.read(body)}
    return by_turn


async def steps_of(one: Journaled) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_STEPS, id=one.row["id"])

    return await one.journal.read(body)


async def actions_of(stores: Stores, operation_id: str) -> list[tuple[Row, list[Row]]]:
    """Return the operation's history in the API: each action with its events. Only cells keep these."""
    actions: list[tuple[Row, list[Row]]] = []
    for name in stores.cells():

        async def body(tx: Tx) -> list[tuple[Row, list[Row]]]:
            taken = await tx.all(_ACTIONS, id=operation_id)
            events = list(await tx.all(_EVENTS, id=operation_id)) if taken else []
            return [(action, events) for action in taken]

        with contextlib.suppress(Unreachable):
            actions += await stores.cell(name).read(body)
    return actions


async def _continued(stores: Stores, operations: Sequence[Row]) -> set[tuple[str, str]]:
    """Id and kind of those that go on in another journal."""
    kinds = {row["id"]: row["kind"] for row in operations if row["kind"] in ONE_AFTER_ANOTHER[:-1]}
    continued: set[tuple[str, str]] = set()
    for journal in stores.journals() if kinds else ():
        with contextlib.suppress(Unreachable):
            for id_, row in (await _with_ids(journal, list(kinds))).items():
                if _order_of(row["kind"]) > _order_of(kinds[id_]):
                    continued.add((id_, kinds[id_]))
    return continued


def _order_of(kind: str) -> int:
    return ONE_AFTER_ANOTHER.index(kind) if kind in ONE_AFTER_ANOTHER else 0


async def _with_ids(journal: Store, ids: list[str]) -> dict[str, Row]:
    async def body(tx: Tx) -> dict[str, Row]:
        return {row["id"]: row for row in await tx.all(_WITH_IDS, ids=ids)}

    return await journal.read(body) if ids else {}
