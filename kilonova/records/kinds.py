"""A kind of record as data: which attribute is which column, who sees it, by what it is filtered and sorted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import Select, Table, bindparam, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, as_text
from kilonova.world import Row

Record: TypeAlias = dict[str, Json]  # one record, by the names of its attributes
Columns: TypeAlias = dict[str, object]  # of a row to write, by their names
Filter = Callable[[str], ColumnElement[bool]]  # a condition whose parameter has this name
VIEWER = "viewer"  # the parameter that holds the project that looks
MOST_SHOWN = 80  # characters of an id that an error repeats


def id_of(record: Record) -> str:
    return as_text(record["id"])


def owner_of(record: Record) -> str:
    """Return the project that has it; "" if none has."""
    return as_text(record["project_id"])


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _flag(text: str) -> int:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return int(text.lower() in ("true", "1"))


def _number(text: str) -> int:
    if re.fullmatch("-?[0-9]{1,10}", text) is None or abs(int(text)) >= 2**31:
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True)
class Form:
    """The conversions of a column's value: to show it, and to read it from a filter. None: no filter is possible."""

    show: Callable[[Any], Any] | None = None  # None: as it is
    read: Callable[[str], Any] | None = str
    store: Callable[[Any], Any] | None = None


TEXT = Form(store=lambda value: "" if value is None else value)
MAYBE = Form(show=lambda value: value or None, store=lambda value: value or "")
FLAG = Form(show=bool, read=_flag, store=int)
NUMBER = Form(read=_number)
MAYBE_NUMBER = Form(
    show=lambda value: None if value == -1 else value,
    read=_number,
    store=lambda value: -1 if value is None else value,
)
JSON = Form(show=msgspec.json.decode, read=None, store=lambda value: msgspec.json.encode(value).decode())
TIME = Form(show=iso, read=None)


class Order(NamedTuple):
    column: str
    descending: bool = False


@dataclass(frozen=True, eq=False)  # one object per kind: it is a key of the statements
class Kind:
    name: str  # "security_group"; with an s its collection
    label: str  # "security group", for sentences
    table: Table
    attributes: Mapping[str, tuple[str, Form]] = field(default_factory=dict)
    visible: ColumnElement[bool] | None = None  # by VIEWER; None: the project's own records
    more: frozenset[str] = frozenset()  # attributes from other tables
    filters: Mapping[str, Filter] = field(default_factory=dict)  # those that are not a column
    source: Select[Any] | None = None  # None: the table's columns
    key: str = "id"  # the column that a marker names
    order: tuple[Order, ...] = (Order("id"),)  # in which no two records are equal, else a page repeats or loses one
    follows: bool = False  # that order goes in the direction of the first requested key
    lost: Callable[[str], Refused] | None = None  # of a marker that is not a record; None: as of any other record
    tags: Table | None = None

    @property
    def plural(self) -> str:
        return f"{self.name}s"

    @property
    def not_found(self) -> str:
        return f"{self.label.replace(' ', '_')}_not_found"

    def missing(self, record_id: str) -> Refused:
        return Refused(self.not_found, f"{self.label.capitalize()} {record_id[:MOST_SHOWN]} could not be found.")

    def own(self) -> ColumnElement[bool]:
        return self.table.c.project_id == bindparam(VIEWER)

    def rows(self, sees_all: bool) -> Select[Any]:
        statement = select(self.table) if self.source is None else self.source
        return statement if sees_all else statement.where(self.own() if self.visible is None else self.visible)

    def view(self, row: Row) -> Record:
        return {
            name: row[column] if form.show is None else form.show(row[column])
            for name, (column, form) in self.attributes.items()
        }

    def columns_of(self, request: Mapping[str, object]) -> Columns:
        """Return the requested attributes as this table's columns; those of other tables are left out."""
        columns: Columns = {}
        for name, value in request.items():
            if name in self.attributes:
                column, form = self.attributes[name]
                columns[column] = value if form.store is None else form.store(value)
        return columns
