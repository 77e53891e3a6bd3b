"""Kinds that are simply kept: made, changed and deleted by id, each with the few checks that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kilonova.services.identity.records import (
    IdentityRecords,
    Record,
    RecordKind,
    extra_of,
    fetch,
)
from kilonova.store import rows
from kilonova.world import Row, Tx


class RecordService:
    kind: ClassVar[RecordKind]
    defaults: ClassVar[Mapping[str, Any]] = {}  # of columns that a client may leave out

    def __init__(self, records: IdentityRecords) -> None:
        self.records = records

    async def check(self, tx: Tx, record_id: str, wish: Mapping[str, Any], is_new: bool) -> Mapping[str, Any]:
        """Return the values to write. Raises `Refused` if they are invalid."""
        return wish

    async def leave(self, tx: Tx, row: Row) -> None:
        """Prepare to delete the record. Raises `Refused` if it is still needed."""

    async def create(self, wish: Mapping[str, Any], new_id: str = "") -> Record:
        new_id = new_id or self.records.new_id()

        async def body(tx: Tx) -> Row:
            checked = await self.check(tx, new_id, wish, True)
            await rows.put(tx, self.kind.table, **{**self.defaults, **self.kind.columns_of(checked), "id": new_id})
            return await fetch(tx, self.kind, new_id)

        return self.kind.view(await self.records.write(body))

    async def change(self, record_id: str, change: Mapping[str, Any]) -> Record:
        async def body(tx: Tx) -> Row:
            row = await fetch(tx, self.kind, record_id)
            checked = await self.check(tx, record_id, change, False)
            await rows.change(tx, self.kind.table, self.kind.columns_of(checked, extra_of(row)), id=record_id)
            return await fetch(tx, self.kind, record_id)

        return self.kind.view(await self.records.write(body))

    async def delete(self, record_id: str) -> None:
        async def body(tx: Tx) -> None:
            await self.leave(tx, await fetch(tx, self.kind, record_id))
            await rows.remove(tx, self.kind.table, id=record_id)

        await self.records.write(body)

    async def find(self, record_id: str) -> Record | None:
        return await self.records.find(self.kind, record_id)
