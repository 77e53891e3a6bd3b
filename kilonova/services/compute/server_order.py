"""The order of server lists.

By columns of the servers' table: each cell sorts, and returns one page. By values inside a JSON document of the row
(flavor, description, hostname, key, lock, zone, addresses and so on): all rows that may match are read in pieces and
sorted here, and no more than one page and one piece is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Integer, Text, bindparam

from kilonova.schema.tables.cell import servers
from kilonova.store import keyset
from kilonova.store.server_records import SELECTED, ServerRecord
from kilonova.store.statements import Sql, by_bytes

OF_MAPPINGS = {"created_at", "id", "project_id", "user_id"}  # columns that control has too
BOUNDS = {
    "changed_since": servers.c.updated_at >= bindparam("changed_since"),
    "changed_before": servers.c.updated_at <= bindparam("changed_before"),
}
MOST_SHAPES = 256  # any caller can ask in a new shape; the oldest is forgotten


class SortKey(NamedTuple):
    value: Callable[[ServerRecord], Any]
    descending: bool
    column: str = ""  # "": none has it

    @property
    def comparable(self) -> Callable[[ServerRecord], Any]:
        """Return a sort key; None sorts before everything else."""
        if self.column and not servers.c[self.column].nullable:
            return self.value
        return lambda record: ((value := self.value(record)) is not None, value)


def column_key(name: str, descending: bool) -> SortKey:
    """Return the key of a column; records have the same names as the table."""
    return SortKey(attrgetter(name), descending, name)


NEWEST_FIRST = (column_key("created_at", True), column_key("id", True))


@dataclass
class ServerPage:
    limit: int
    after: ServerRecord | None = None  # the marker


Prune = Callable[[list[ServerRecord]], list[ServerRecord]]


class ServerOrder:
    """Keys with their direction, the most important first. Servers that are equal in all of them come newest first."""

    def __init__(self, keys: Sequence[SortKey] = ()) -> None:
        by_column: dict[Any, SortKey] = {}
        for key in (*keys, *NEWEST_FIRST):
            by_column.setdefault(key.column or key.value, key)
            if key.column == "id":
                break  # no two are equal from here on
        self.keys = tuple(by_column.values())

    @property
    def is_of_columns(self) -> bool:
        return all(key.column for key in self.keys)

    @property
    def is_of_mappings(self) -> bool:
        """Return whether a server has a position in the order even if its cell does not answer."""
        return all(key.column in OF_MAPPINGS for key in self.keys)

    def merged(
        self, records: list[ServerRecord], partial: list[ServerRecord], marker: ServerRecord | None
    ) -> list[ServerRecord]:
        """Return the records after the marker. Partial ones that cannot be sorted come last, newest first."""
        if self.is_of_mappings:
            return self._from([*records, *partial], marker)
        if marker is not None and marker.is_partial:
            return ServerOrder()._from(partial, marker)
        return self._from(records, marker) + ServerOrder().arrange(partial)

    def _from(self, records: list[ServerRecord], marker: ServerRecord | None) -> list[ServerRecord]:
        return self.arrange(records) if marker is None else self.after(records, marker)

    def pruning(self, page: ServerPage) -> Prune:
        """Return a function that keeps only the records of that page, so that memory is bounded however many are
        read."""
        return lambda records: self._from(records, page.after)[: page.limit]

    def arrange(self, records: list[ServerRecord]) -> list[ServerRecord]:
        for key in reversed(self.keys):
            records.sort(key=key.comparable, reverse=key.descending)
        return records

    def after(self, records: list[ServerRecord], marker: ServerRecord) -> list[ServerRecord]:
        """Return the records after the marker. A marker that is gone, or filtered out, still has its position."""
        arranged = self.arrange([*(record for record in records if record.id != marker.id), marker])
        return arranged[next(n for n, record in enumerate(arranged, 1) if record is marker) :]

    def marker_values(self, record: ServerRecord) -> list[Any]:
        return [key.value(record) for key in self.keys]

    def chunk(self, by: tuple[str, ...], bounds: tuple[str, ...], marker: Sequence[Any] | None) -> Sql:
        """`size` rows with these columns, changed within these bounds, after a place in this order, or from the first
        one on."""
        nulls = None if marker is None else tuple(value is None for value in marker)
        return _chunk(by, bounds, tuple((key.column, key.descending) for key in self.keys), nulls)


@lru_cache(MOST_SHAPES)
def _chunk(
    by: tuple[str, ...], bounds: tuple[str, ...], keys: tuple[tuple[str, bool], ...], nulls: tuple[bool, ...] | None
) -> Sql:
    order = [keyset.By(_sortable(name), descending, bool(servers.c[name].nullable)) for name, descending in keys]
    where = [servers.c[name] == bindparam(name) for name in by]
    where += [BOUNDS[name] for name in bounds]
    if nulls is not None:
        where.append(keyset.after(order, nulls))
    if nulls is not None and not order[0].nullable:  # says nothing new, but an index can be entered by it
        first: Any = order[0].column
        where.append(first <= bindparam("last0") if order[0].descending else first >= bindparam("last0"))
    statement = SELECTED.where(*where).order_by(*keyset.ordered(order))
    return Sql(statement.limit(bindparam("size", type_=Integer)))


def _sortable(name: str) -> Any:
    """Return the column, sorted as Python sorts, because pages of several cells are merged. Ids have one form and sort
    alike anyway."""
    column = servers.c[name]
    return by_bytes(column) if isinstance(column.type, Text) and name != "id" else column
