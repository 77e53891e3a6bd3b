"""The create, list, show, update and delete handlers of identity's records.

Each policy rule is checked with the record that it concerns, or with none if there is no such record: a caller who may
not see a record cannot find out that it exists.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from kilonova.api.call import Call
from kilonova.api.collection import Collection
from kilonova.api.forms import Forms
from kilonova.api.identity.rules import PolicyTarget, require
from kilonova.api.identity.view import change_of, member
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.records import RecordKind, missing


class IdentityCollection(Collection[Record]):
    kind: RecordKind
    list_key: str  # "users"
    param = "id"  # of the address
    reads: str  # rules
    writes: str

    @property
    def body_key(self) -> str:
        return self.kind.label

    @abstractmethod
    def service(self, call: Call) -> Any:
        """Return what creates, changes and deletes these records."""

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        return PolicyTarget()

    async def look_up(self, call: Call) -> Record | None:
        return await call.service.identity.records.find(self.kind, call.path[self.param])

    async def find(self, call: Call, *, writes: bool = False, rule: str = "") -> Record:
        record = await self.look_up(call)
        default = self.writes if writes else self.reads
        require(call, rule or default, self.target(call, record, writes=writes))
        if record is None:
            raise missing(self.body_key, call.path[self.param])
        return record

    async def add(self, call: Call) -> Record:
        require(call, self.writes)
        record: Record = await self.service(call).create(call.body[self.body_key])
        return record

    async def edit(self, call: Call, record: Record) -> Record:
        change = change_of(call, self.body_key, id_of(record))
        changed: Record = await self.service(call).change(id_of(record), change)
        return changed

    async def drop(self, call: Call, record: Record) -> None:
        await self.service(call).delete(id_of(record))

    def view(self, call: Call, record: Record) -> Record:
        return member(call, self.list_key, record)

    def routes(self, forms: tuple[Forms, Forms]) -> Iterator[Route]:
        """`forms`: of a create and of a change."""
        path = f"/{self.list_key}"
        one = f"{path}/{{{self.param}}}"
        yield Route(method="GET", path=path, handler=self.list_, rule=ANY_TOKEN)
        yield Route(method="POST", path=path, handler=self.create, rule=ANY_TOKEN, body=forms[0])
        yield Route(method="GET", path=one, handler=self.show, rule=ANY_TOKEN)
        yield Route(method="PATCH", path=one, handler=self.update, rule=ANY_TOKEN, body=forms[1])
        yield Route(method="DELETE", path=one, handler=self.delete, rule=ANY_TOKEN)
