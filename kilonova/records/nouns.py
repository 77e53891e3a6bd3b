"""The common verbs of all nouns: list, show, create, update, delete, tags. Each noun defines what they do for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import Table, select

from kilonova.records.kinds import Columns, Kind, Record, id_of
from kilonova.records.query import ALL, ListQuery, find, find_by_ids, find_one
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Clock, Ids, Row, Store, Tx

Attributes = Mapping[str, Any]  # attributes by name, of the right types


class RecordContext(Protocol):
    @property
    def control(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...

    async def charge(self, tx: Tx, project_id: str, kind: str, count: int) -> None:
        """Raise `Refused` when `count` more would be too many for the project."""

    def touched(self, kind: str, records: Iterable[Mapping[str, Any]]) -> None:
        """React to changed records, after the commit."""


C = TypeVar("C", bound=RecordContext)


class Noun(ABC, Generic[C]):
    kind: Kind
    few: ClassVar[bool] = True  # one record, with its details, is a few rows

    def __init__(self, context: C) -> None:
        self.context = context
        self.control = context.control

    # -- looking ------------------------------------------------------------------------------------------------------

    async def all(self, viewer: str | None, query: ListQuery = ALL) -> list[Record]:
        async def body(tx: Tx) -> list[Record]:
            return await self.views(tx, await find(tx, self.kind, viewer, query))

        return await self.control.read(body)

    async def show(self, viewer: str | None, record_id: str) -> Record:
        async def body(tx: Tx) -> Record:
            return (await self.views(tx, [await find_one(tx, self.kind, viewer, record_id)]))[0]

        return await self.control.read(body, few=self.few)

    async def views(self, tx: Tx, record_rows: Sequence[Row]) -> list[Record]:
        records = [self.kind.view(row) for row in record_rows]
        if records:
            await put_tags_on(tx, self.kind, records)
            await self.dress(tx, records, record_rows)
        return records

    async def dress(self, tx: Tx, records: Sequence[Record], record_rows: Sequence[Row]) -> None:
        """Add what lies in other tables, with few statements for all."""

    # -- changing -----------------------------------------------------------------------------------------------------

    async def create(self, viewer: str | None, requests: Sequence[Attributes]) -> Sequence[Record]:
        """Create all or none of the records; each request names its project."""
        ids, now = [self.context.ids.uuid() for _ in requests], self.context.clock.now()

        async def body(tx: Tx) -> Sequence[Record]:
            for project_id, count in sorted(Counter(request["project_id"] for request in requests).items()):
                await self.context.charge(tx, project_id, self.kind.name, count)
            for record_id, request in zip(ids, requests, strict=True):
                await self.insert(tx, viewer, record_id, request, now)
                await add_tags(tx, self.kind, record_id, request.get("tags", ()))
            return await self.views(tx, await find_by_ids(tx, self.kind, ids))

        records = await self.control.write(body)
        self.context.touched(self.kind.name, records)
        return records

    @abstractmethod
    async def insert(self, tx: Tx, viewer: str | None, record_id: str, request: Attributes, now: float) -> None:
        """Insert the rows of a new record; attributes missing in the request get their defaults."""

    def standard(self, record_id: str, request: Attributes, now: float) -> Columns:
        return {
            "id": record_id,
            "project_id": request["project_id"],
            "name": request.get("name") or "",
            "description": request.get("description") or "",
            "revision": 1,
            "created_at": now,
            "updated_at": now,
        }

    async def update(self, viewer: str | None, record_id: str, request: Attributes) -> Record:
        now = self.context.clock.now()

        async def body(tx: Tx) -> Record:
            row = await self.locked(tx, record_id)
            columns = await self.changed(tx, viewer, row, request)
            await self.save(tx, row, columns, now)
            return (await self.views(tx, [await find_one(tx, self.kind, None, record_id)]))[0]

        record = await self.control.write(body)
        self.context.touched(self.kind.name, [record])
        return record

    async def locked(self, tx: Tx, record_id: str) -> Row:
        row = await rows.fetch(tx, self.kind.table, lock=True, id=record_id)
        if row is None:
            raise self.kind.missing(record_id)
        return row

    async def changed(self, tx: Tx, viewer: str | None, row: Row, request: Attributes) -> Columns:
        """Check the request and return the columns to set."""
        return self.kind.columns_of(request)

    async def save(self, tx: Tx, row: Row, columns: Columns, now: float) -> None:
        stamped = {**columns, "revision": row["revision"] + 1, "updated_at": now}
        await rows.change(tx, self.kind.table, stamped, id=row["id"])

    async def delete(self, viewer: str | None, record_id: str) -> None:
        async def body(tx: Tx) -> Columns:
            row = await self.locked(tx, record_id)
            await self.remove(tx, viewer, row)
            await remove_tags(tx, self.kind, record_id)
            await rows.remove(tx, self.kind.table, id=record_id)
            return {name: row[name] for name in row.keys()}  # noqa: SIM118 - a row is no dictionary

        self.context.touched(self.kind.name, [await self.control.write(body)])

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:
        """Check that it may go, and take along what goes with it."""

    # -- tags ---------------------------------------------------------------------------------------------------------

    async def edit_tags(self, record_id: str, edit: Callable[[list[str]], list[str]]) -> list[str]:
        """Change the tags. `edit` returns the new ones, or its argument to change nothing, or raises."""
        now = self.context.clock.now()

        async def body(tx: Tx) -> list[str]:
            row = await self.locked(tx, record_id)
            old = (await tags_of(tx, self.kind, [record_id]))[record_id]
            new = edit(old)
            if new is not old:
                await self.save(tx, row, {}, now)
                await remove_tags(tx, self.kind, record_id)
                await add_tags(tx, self.kind, record_id, new)
            return sorted(set(new))

        return await self.control.write(body)


# -- rows of tags -----------------------------------------------------------------------------------------------------


@cache
def _select(table: Table) -> Sql:
    return Sql(select(table).where(in_list(table.c.record_id, "ids")).order_by(table.c.tag))


@cache
def _insert(table: Table) -> Sql:
    return Sql(insert_row(table))


async def tags_of(tx: Tx, kind: Kind, ids: Sequence[str]) -> dict[str, list[str]]:
    tagged: dict[str, list[str]] = {record_id: [] for record_id in ids}
    for row in await tx.all(_select(kind.tags), ids=list(ids)) if kind.tags is not None else ():
        tagged[row["record_id"]].append(row["tag"])
    return tagged


async def put_tags_on(tx: Tx, kind: Kind, records: Sequence[Record]) -> None:
    tagged = await tags_of(tx, kind, [id_of(record) for record in records])
    for record in records:
        record["tags"] = tagged[id_of(record)]


async def add_tags(tx: Tx, kind: Kind, record_id: str, wanted: Sequence[str]) -> None:
    if wanted and kind.tags is not None:
        await tx.many(_insert(kind.tags), [{"record_id": record_id, "tag": tag} for tag in sorted(set(wanted))])


async def remove_tags(tx: Tx, kind: Kind, record_id: str) -> None:
    if kind.tags is not None:
        await rows.remove(tx, kind.tags, record_id=record_id)
