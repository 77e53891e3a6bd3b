"""The verbs that volumes and snapshots share: find, list, describe, and their metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

from kilonova.domain.caller import Caller
from kilonova.records.query import ListQuery, count, find
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.records import OwnedRows, R, set_metadata
from kilonova.services.volume.volume import USER, Volume
from kilonova.world import Tx

Edit = Callable[[dict[str, str]], dict[str, str]]


class OwnedRecords(Generic[R]):
    records: OwnedRows[R]

    def __init__(self, context: VolumeContext) -> None:
        self._context = context

    async def find(self, caller: Caller, record_id: str) -> R:
        async def body(tx: Tx) -> R:
            return await self.records.visible(tx, caller, record_id)

        return await self._context.control.read(body, few=True)

    async def list_(self, viewer: str | None, wanted: ListQuery, *, counted: bool = False) -> tuple[list[R], int]:
        """Return a page and, if `counted`, the number of records on all pages. `viewer`: a project; None: all
        projects."""

        async def body(tx: Tx) -> tuple[list[R], int]:
            page = await self.records.whole(tx, await find(tx, self.records.kind, viewer, wanted))
            return page, await count(tx, self.records.kind, viewer, wanted) if counted else 0

        return await self._context.control.read(body)

    async def describe(
        self, caller: Caller, record_id: str, values: Mapping[str, Any], metadata: dict[str, str] | None = None
    ) -> R:
        """Change `values` (a name, a description; for those who may, a state); `metadata` replaces the old metadata."""
        changes = {**values, "updated_at": self._context.clock.now()}

        async def body(tx: Tx) -> R:
            record = await self.records.visible(tx, caller, record_id, lock=True)
            if metadata is not None:
                await set_metadata(tx, record_id, USER, metadata)
            return await self.records.change(tx, record, changes)

        return await self._context.control.write(body)

    async def edit_metadata(self, caller: Caller, record_id: str, edit: Edit, kind: str = USER) -> dict[str, str]:
        """Edit the metadata. `edit` returns the new metadata, or raises; it may be called twice."""
        now = self._context.clock.now()

        async def body(tx: Tx) -> dict[str, str]:
            record = await self.records.visible(tx, caller, record_id, lock=True)
            old = record.image_metadata if kind != USER and isinstance(record, Volume) else record.metadata
            new = edit(old)
            await set_metadata(tx, record_id, kind, new)
            await self.records.change(tx, record, {"updated_at": now})
            return new

        return await self._context.control.write(body)
