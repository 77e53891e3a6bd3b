"""Rows as plain records and back, with the same find, list and write for every kind of identity record.

A record is a dictionary as the API shows it: flags are true or false; attributes that a client added beyond our columns
(an email, say) are at the same level. Every write goes through `IdentityRecords.write`, which raises the version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Table, select, update

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject, json_object
from kilonova.records.kinds import FLAG, JSON, Columns, Form, Kind, Record
from kilonova.records.query import ALL, EQUAL, Condition, ListQuery, find
from kilonova.schema.tables.identity import identity_state
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Body, Ids, Row, Store, Tx

T = TypeVar("T")
FLAGS = frozenset({"enabled", "is_domain"})
FORMS = {**dict.fromkeys(FLAGS, FLAG), "tags": JSON, "options": JSON}
LINKS = "links"  # a key of responses that clients send back

_RAISE = Sql(update(identity_state).where(identity_state.c.id == 1).values(version=identity_state.c.version + 1))
_VERSION = Sql(select(identity_state.c.version).where(identity_state.c.id == 1))


@dataclass(frozen=True, eq=False)
class RecordKind(Kind):
    """A kind whose records keep what a client adds beyond the columns."""

    settable: frozenset[str] = frozenset()  # columns that a client may set
    filterable: tuple[str, ...] = ()  # columns that a list may be asked for

    def view(self, row: Row) -> Record:
        return {**extra_of(row), **super().view(row)}

    def columns_of(self, request: Mapping[str, object], extra: JsonObject | None = None) -> Columns:
        """Return a client's attributes as columns; `extra`: the attributes stored beside them before. A column that
        clients may not set (an id, say) is ignored."""
        known = {name: value for name, value in request.items() if name in self.settable}
        beside = {name: value for name, value in request.items() if name not in self.table.c and name != LINKS}
        return {**super().columns_of(known), "extra": to_json({**(extra or {}), **beside})}


def kind_of(
    noun: str,
    table: Table,
    settable: frozenset[str],
    filterable: tuple[str, ...] = (),
    hidden: frozenset[str] = frozenset(),
) -> RecordKind:
    """Return the kind of a table. `noun`: as it is called in bodies and sentences; `hidden`: columns not shown."""
    visible_columns = [column.name for column in table.columns if column.name not in {"extra", *hidden}]
    attributes = {name: (name, FORMS.get(name, Form())) for name in visible_columns}
    return RecordKind(noun, noun, table, attributes, settable=settable, filterable=filterable)


class IdentityRecords:
    def __init__(self, control: Store, ids: Ids, changed: Callable[[int | None], None]) -> None:
        """`changed` is called with the new version after a write, or None if the commit's outcome is unknown."""
        self._store, self._ids, self._changed = control, ids, changed

    def new_id(self) -> str:
        return self._ids.uuid().replace("-", "")

    async def read(self, body: Body[T]) -> T:
        return await self._store.read(body)

    async def write(self, body: Body[T]) -> T:
        """Run a body that writes. The version's row is locked first, so the body's checks stay true until COMMIT."""

        async def whole(tx: Tx) -> tuple[int, T]:
            await tx.run(_RAISE)
            row = await tx.one(_VERSION)
            return 0 if row is None else int(row["version"]), await body(tx)

        try:
            version, result = await self._store.write(whole)
        except Refused:
            raise  # nothing was written
        except BaseException:
            self._changed(None)
            raise
        self._changed(version)
        return result

    async def find(self, kind: RecordKind, record_id: str) -> Record | None:
        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, kind.table, id=record_id)

        row = await self.read(body)
        return None if row is None else kind.view(row)

    async def page(self, kind: RecordKind, by: Mapping[str, Any], page: ListQuery = ALL) -> list[Record]:
        """Return the records with these values, sorted by id."""
        conditions = tuple(Condition(name, EQUAL, value) for name, value in by.items())

        async def body(tx: Tx) -> Sequence[Row]:
            return await find(tx, kind, None, page._replace(conditions=(*conditions, *page.conditions)))

        return [kind.view(row) for row in await self.read(body)]


async def fetch(tx: Tx, kind: RecordKind, record_id: str) -> Row:
    """Return the row. Raise `Refused` if it does not exist."""
    row = await rows.fetch(tx, kind.table, id=record_id)
    if row is None:
        raise missing(kind.label, record_id)
    return row


def missing(noun: str, record_id: str) -> Refused:
    return Refused("not_found", f"Could not find {noun}: {record_id[:255]}.")


async def refuse_same_name(tx: Tx, kind: RecordKind, name: str, domain_id: str, own_id: str = "") -> None:
    row = await rows.fetch(tx, kind.table, name=name, domain_id=domain_id)
    if row is not None and row["id"] != own_id:
        where = f" in domain {domain_id}" if domain_id else ""
        raise Refused("exists", f"There is already a {kind.label} {name}{where}.")


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def extra_of(row: Row) -> JsonObject:
    return json_object(row["extra"])


def refuse_immutable(noun: str, row: Row, change: Mapping[str, Any] | None = None) -> None:
    """Refuse to change or delete an immutable record. The mark must be removed first, by a change of nothing else."""
    if not msgspec.json.decode(row["options"]).get("immutable"):
        return
    if change is not None and set(change) == {"options"} and not change["options"].get("immutable", True):
        return
    raise Refused("forbidden", f"The {noun} {row['name']} is immutable; set its option immutable to false first.")
