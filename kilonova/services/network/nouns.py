"""The common verbs of all nouns: list, show, create, update; each noun defines what a create or a change means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from kilonova.schema.tables.network import tags
from kilonova.services.network.kinds import Kind, Thing
from kilonova.services.network.listing import ALL, Search, find, find_by_ids, find_one
from kilonova.services.network.locks import lock_project
from kilonova.services.network.quotas import NetworkQuotas
from kilonova.services.network.wakeups import Wakeups
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list, insert_row
from kilonova.world import Clock, Ids, Row, Store, Tx

Wish = Mapping[str, Any]  # attributes by name, of the right types

_TAGS = Sql(select(tags).where(in_list(tags.c.thing_id, "ids")).order_by(tags.c.tag))
_ADD_TAG = Sql(insert_row(tags))


@dataclass(frozen=True)
class NetworkContext:
    control: Store
    clock: Clock
    ids: Ids
    quotas: NetworkQuotas
    wakeups: Wakeups | None = None

    def touched(self, kind: str, things: Iterable[Mapping[str, Any]]) -> None:
        """Wake the hosts that these changes concern, after the commit."""
        if self.wakeups is not None:
            for thing in things:
                self.wakeups.touch_thing(kind, thing)


class Noun(ABC):
    kind: Kind

    def __init__(self, context: NetworkContext) -> None:
        self.context = context
        self.control = context.control

    # -- looking ------------------------------------------------------------------------------------------------------

    async def all(self, viewer: str | None, search: Search = ALL) -> list[Thing]:
        async def body(tx: Tx) -> list[Thing]:
            return await self.told(tx, await find(tx, self.kind, viewer, search))

        return await self.control.read(body)

    async def show(self, viewer: str | None, thing_id: str) -> Thing:
        async def body(tx: Tx) -> Thing:
            return (await self.told(tx, [await find_one(tx, self.kind, viewer, thing_id)]))[0]

        return await self.control.read(body)

    async def told(self, tx: Tx, found: Sequence[Row]) -> list[Thing]:
        things = [self.kind.view(row) for row in found]
        if things:
            await put_tags_on(tx, things)
            await self.dress(tx, things, found)
        return things

    async def dress(self, tx: Tx, things: Sequence[Thing], found: Sequence[Row]) -> None:  # noqa: B027 - may be nothing
        """Add what lies in other tables, with few statements for all."""

    # -- changing -----------------------------------------------------------------------------------------------------

    async def create(self, viewer: str | None, wishes: Sequence[Wish]) -> Sequence[Thing]:
        """Create all or none of the records; each request names its project."""
        ids, now = [self.context.ids.uuid() for _ in wishes], self.context.clock.now()

        async def body(tx: Tx) -> Sequence[Thing]:
            for project_id, count in sorted(Counter(wish["project_id"] for wish in wishes).items()):
                await lock_project(tx, project_id)
                await self.context.quotas.charge(tx, project_id, self.kind.name, count)
            for thing_id, wish in zip(ids, wishes, strict=True):
                await self.insert(tx, viewer, thing_id, wish, now)
                await add_tags(tx, thing_id, wish.get("tags", ()))
            return await self.told(tx, await find_by_ids(tx, self.kind, ids))

        things = await self.control.write(body)
        self.context.touched(self.kind.name, things)
        return things

    @abstractmethod
    async def insert(self, tx: Tx, viewer: str | None, thing_id: str, wish: Wish, now: float) -> None:
        """The rows of one new thing; what the wish does not say has its default."""

    def standard(self, thing_id: str, wish: Wish, now: float) -> dict[str, Any]:
        return {
            "id": thing_id,
            "project_id": wish["project_id"],
            "name": wish.get("name") or "",
            "description": wish.get("description") or "",
            "revision": 1,
            "created_at": now,
            "updated_at": now,
        }

    async def update(self, viewer: str | None, thing_id: str, wish: Wish) -> Thing:
        now = self.context.clock.now()

        async def body(tx: Tx) -> Thing:
            row = await self.locked(tx, thing_id)
            columns = await self.changed(tx, viewer, row, wish)
            await self.save(tx, row, columns, now)
            return (await self.told(tx, [await find_one(tx, self.kind, None, thing_id)]))[0]

        thing = await self.control.write(body)
        self.context.touched(self.kind.name, [thing])
        return thing

    async def locked(self, tx: Tx, thing_id: str) -> Row:
        row = await rows.fetch(tx, self.kind.table, lock=True, id=thing_id)
        if row is None:
            raise self.kind.missing(thing_id)
        return row

    async def changed(self, tx: Tx, viewer: str | None, row: Row, wish: Wish) -> dict[str, Any]:
        """Check the wish and give the columns to set."""
        return self.kind.columns_of(wish)

    async def save(self, tx: Tx, row: Row, columns: dict[str, Any], now: float) -> None:
        stamped = {**columns, "revision": row["revision"] + 1, "updated_at": now}
        await rows.change(tx, self.kind.table, stamped, id=row["id"])

    async def delete(self, viewer: str | None, thing_id: str) -> None:
        async def body(tx: Tx) -> dict[str, Any]:
            row = await self.locked(tx, thing_id)
            await self.remove(tx, viewer, row)
            await rows.remove(tx, tags, thing_id=thing_id)
            await rows.remove(tx, self.kind.table, id=thing_id)
            return {name: row[name] for name in row.keys()}  # noqa: SIM118 - a row is no dictionary

        self.context.touched(self.kind.name, [await self.control.write(body)])

    async def remove(self, tx: Tx, viewer: str | None, row: Row) -> None:  # noqa: B027 - may be nothing
        """Check that it may go, and take along what goes with it."""

    # -- tags ---------------------------------------------------------------------------------------------------------

    async def set_tags(self, thing_id: str, wanted: Sequence[str]) -> Sequence[str]:
        now = self.context.clock.now()

        async def body(tx: Tx) -> None:
            await self.save(tx, await self.locked(tx, thing_id), {}, now)
            await rows.remove(tx, tags, thing_id=thing_id)
            await add_tags(tx, thing_id, wanted)

        await self.control.write(body)
        return sorted(set(wanted))

    async def add_tag(self, thing_id: str, tag: str, most: int) -> bool:
        """Add a tag. False: there would be more than `most`."""
        now = self.context.clock.now()

        async def body(tx: Tx) -> bool:
            row = await self.locked(tx, thing_id)
            there = {each["tag"] for each in await rows.fetch_all(tx, tags, thing_id=thing_id)}
            if tag in there:
                return True
            if len(there) >= most:
                return False
            await self.save(tx, row, {}, now)
            await add_tags(tx, thing_id, [tag])
            return True

        return await self.control.write(body)

    async def remove_tag(self, thing_id: str, tag: str) -> bool:
        """Remove a tag. False: it does not exist."""
        now = self.context.clock.now()

        async def body(tx: Tx) -> bool:
            row = await self.locked(tx, thing_id)
            if not await rows.remove(tx, tags, thing_id=thing_id, tag=tag):
                return False
            await self.save(tx, row, {}, now)
            return True

        return await self.control.write(body)


async def put_tags_on(tx: Tx, things: Sequence[Thing]) -> None:
    tagged: dict[str, list[str]] = {thing["id"]: [] for thing in things}
    for row in await tx.all(_TAGS, ids=list(tagged)):
        tagged[row["thing_id"]].append(row["tag"])
    for thing in things:
        thing["tags"] = tagged[thing["id"]]


async def add_tags(tx: Tx, thing_id: str, wanted: Sequence[str]) -> None:
    if wanted:
        await tx.many(_ADD_TAG, [{"thing_id": thing_id, "tag": tag} for tag in sorted(set(wanted))])
