"""The hosts' room in memory, as numpy columns. SQL only loads it; it may propose, never refuse.

`sync` reads what changed since the last watermark. Whatever changes an inventory also marks its provider's row (the
ledger and inventories.py both do), so the providers' marks alone tell, and a changed provider is read whole: a class
that is gone needs no tombstone. A deleted provider leaves no mark; it costs a refused claim until the next census
notices that there are more rows here than there and loads everything anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, func, select

from kilonova.store.statements import Sql
from kilonova.store.tables.placement import inventories, resource_classes, resource_providers
from kilonova.world import Row, Store, Tx

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CENSUS_EVERY = 64  # syncs
FIRST_ROWS = 64

READ_CHANGES = Sql(
    select(
        resource_providers.c.id,
        resource_providers.c.uuid,
        resource_providers.c.root_id,
        resource_providers.c.generation,
        resource_providers.c.accepting,
        resource_classes.c.name,
        inventories.c.capacity,
        inventories.c.used,
        inventories.c.min_unit,
        inventories.c.max_unit,
        inventories.c.step_size,
    )
    .select_from(resource_providers)
    .outerjoin(inventories, inventories.c.provider_id == resource_providers.c.id)
    .outerjoin(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(resource_providers.c.mark >= bindparam("since"))
    .order_by(resource_providers.c.id)
)
COUNT_PROVIDERS = Sql(select(func.count().label("providers")).select_from(resource_providers))


def _column() -> Ints:
    return np.zeros(FIRST_ROWS, dtype=np.int64)


class ClassColumns:
    """One resource class over all providers; all zeros where a provider has none. One table, a row per name: its
    columns are taken out for the hosts of a request all at once."""

    NAMES = ("capacity", "used", "min_unit", "max_unit", "step_size")

    def __init__(self, rows: int = FIRST_ROWS) -> None:
        self.table: Ints = np.zeros((len(self.NAMES), rows), dtype=np.int64)

    def set(self, at: int, row: Row) -> None:
        self.table[:, at] = [row[name] for name in self.NAMES]

    def clear(self, at: int) -> None:
        self.table[:, at] = 0

    def grow(self, rows: int) -> None:
        larger = ClassColumns(rows)
        larger.table[:, : self.table.shape[1]] = self.table
        self.table = larger.table


class Snapshot:
    """Columns over providers; `index` gives a provider's place in each of them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0  # syncs begun so far
        self._seen = 0  # the newest sync whose rows are in
        self._empty()

    def _empty(self) -> None:
        self.index: dict[str, int] = {}
        self.uuids: list[str] = []
        self.provider_id: Ints = _column()
        self.root_id: Ints = _column()
        self.generation: Ints = _column()
        self.accepting: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self.classes: dict[str, ClassColumns] = {}
        self.watermark = 0

    def __len__(self) -> int:
        return len(self.uuids)

    async def sync(self, store: Store) -> None:
        """Afterwards everything committed before this call is in. Callers that wait together share one read."""
        asked = self._begun
        async with self._lock:
            if self._seen > asked:
                return  # a sync that began after we asked has ended meanwhile
            self._begun = this = self._begun + 1
            await self._read(store, census=this % CENSUS_EVERY == 0)
            self._seen = this

    async def reload(self, store: Store) -> None:
        """Load everything anew, e.g. after a claim found a provider gone."""
        async with self._lock:
            await self._load_all(store)

    async def _read(self, store: Store, *, census: bool) -> None:
        watermark, rows, providers = await _changes(store, self.watermark, census)
        self._take(rows)
        self.watermark = watermark
        if census and providers < len(self):
            await self._load_all(store)

    async def _load_all(self, store: Store) -> None:
        watermark, rows, _ = await _changes(store, 0, False)
        self._empty()  # only now: whoever looks while we wait sees the old columns, not none
        self._take(rows)
        self.watermark = watermark

    def _take(self, rows: Sequence[Row]) -> None:
        uuid, at = "", 0
        for row in rows:
            if row["uuid"] != uuid:
                uuid = row["uuid"]
                at = self._place(uuid)
                self._set_provider(at, row)
            if row["name"] is not None:
                self._class(row["name"]).set(at, row)

    def _set_provider(self, at: int, row: Row) -> None:
        self.provider_id[at] = row["id"]
        self.root_id[at] = row["root_id"]
        self.generation[at] = row["generation"]
        self.accepting[at] = bool(row["accepting"])
        for columns in self.classes.values():
            columns.clear(at)

    def _place(self, uuid: str) -> int:
        at = self.index.get(uuid)
        if at is None:
            at = self.index[uuid] = len(self.uuids)
            self.uuids.append(uuid)
            if at >= len(self.provider_id):
                self._grow(2 * at)
        return at

    def _class(self, name: str) -> ClassColumns:
        columns = self.classes.get(name)
        if columns is None:
            columns = self.classes[name] = ClassColumns(len(self.provider_id))
        return columns

    def _grow(self, rows: int) -> None:
        self.provider_id = _grown(self.provider_id, rows)
        self.root_id = _grown(self.root_id, rows)
        self.generation = _grown(self.generation, rows)
        self.accepting = _grown(self.accepting, rows)
        for columns in self.classes.values():
            columns.grow(rows)


async def _changes(store: Store, since: int, census: bool) -> tuple[int, Sequence[Row], int]:
    async def body(tx: Tx) -> tuple[int, Sequence[Row], int]:
        watermark = await tx.watermark()  # first: what commits after it is read now or the next time
        rows = await tx.all(READ_CHANGES, since=since)
        count = await tx.one(COUNT_PROVIDERS) if census else None
        return watermark, rows, count["providers"] if count else 0

    return await store.read(body, few=since > 0)


def _grown(column: NDArray[Any], rows: int) -> NDArray[Any]:
    larger = np.zeros(max(rows, len(column)), dtype=column.dtype)
    larger[: len(column)] = column
    return larger
