"""Kinds that are simply kept: made, changed and deleted by id, each with the few checks that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Columns, Record
from kilonova.services.identity.projects import DOMAIN, fetch_as
from kilonova.services.identity.records import IdentityRecords, RecordKind, extra_of, fetch, refuse_same_name
from kilonova.store import rows
from kilonova.world import Row, Tx


class RecordService:
    kind: ClassVar[RecordKind]
    defaults: ClassVar[Mapping[str, Any]] = {}  # of columns that a client may leave out

    def __init__(self, records: IdentityRecords) -> None:
        self.records = records

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        """Return the values to write; `row` is None for a new record. Raise `Refused` if they are invalid."""
        return request

    async def stamped(self, tx: Tx, row: Row, columns: Columns) -> Columns:
        """Return the columns of a change with those that follow from it."""
        return columns

    async def leave(self, tx: Tx, row: Row) -> None:
        """Prepare to delete the record. Raise `Refused` if it is still needed."""

    async def create(self, request: Mapping[str, Any], new_id: str = "", **columns: Any) -> Record:
        """Create a record. `columns`: those that a client does not set itself."""
        new_id = new_id or self.records.new_id()

        async def body(tx: Tx) -> Row:
            checked = self.kind.columns_of(await self.check(tx, new_id, {**request, **columns}, None))
            await rows.put_row(tx, self.kind.table, {**self.defaults, **checked, **columns, "id": new_id})
            return await fetch(tx, self.kind, new_id)

        return self.kind.view(await self.records.write(body))

    async def change(self, record_id: str, change: Mapping[str, Any], **columns: Any) -> Record:
        async def body(tx: Tx) -> Row:
            row = await fetch(tx, self.kind, record_id)
            checked = self.kind.columns_of(await self.check(tx, record_id, change, row), extra_of(row))
            await rows.change(tx, self.kind.table, await self.stamped(tx, row, {**checked, **columns}), id=record_id)
            return await fetch(tx, self.kind, record_id)

        return self.kind.view(await self.records.write(body))

    async def delete(self, record_id: str) -> None:
        async def body(tx: Tx) -> None:
            await self.leave(tx, await fetch(tx, self.kind, record_id))
            await rows.remove(tx, self.kind.table, id=record_id)

        await self.records.write(body)

    async def find(self, record_id: str) -> Record | None:
        return await self.records.find(self.kind, record_id)


class DomainRecords(RecordService):
    """Kinds whose names are unique in a domain, and that stay in it."""

    async def check(self, tx: Tx, record_id: str, request: Mapping[str, Any], row: Row | None) -> Mapping[str, Any]:
        domain_id = request["domain_id"] if row is None else row["domain_id"]
        if row is None and domain_id:
            await fetch_as(tx, DOMAIN, domain_id)
        if (request.get("domain_id", domain_id) or "") != domain_id:
            raise Refused("bad_request", f"The domain_id of a {self.kind.label} cannot be changed.")
        if "name" in request:
            await refuse_same_name(tx, self.kind, request["name"], domain_id, record_id)
        return request
