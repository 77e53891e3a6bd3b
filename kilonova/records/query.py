"""The query of every list: conditions, order, page, marker. Each shape of it is one statement, built once and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, Text, bindparam, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.records.kinds import VIEWER, Kind, Order
from kilonova.store import keyset
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

MOST_SHAPES = 1024  # any caller can ask in a new shape; the oldest is forgotten

EQUAL, OTHER, ABOVE, AT_LEAST, BELOW, AT_MOST = "eq", "neq", "gt", "gte", "lt", "lte"
COMPARISONS = (EQUAL, OTHER, ABOVE, AT_LEAST, BELOW, AT_MOST)
LIKE, ONE_OF, OUTSIDE = "like", "in", "outside"
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    EQUAL: lambda column, value: column == value,
    OTHER: lambda column, value: column != value,
    ABOVE: lambda column, value: column > value,
    AT_LEAST: lambda column, value: column >= value,
    BELOW: lambda column, value: column < value,
    AT_MOST: lambda column, value: column <= value,
    LIKE: lambda column, value: column.like(value, escape="\\"),
}


class Condition(NamedTuple):
    name: str  # a column, or a filter of the kind
    operator: str
    value: Any  # a tuple gives several parameters; of OUTSIDE: the first value inside, and the first after it


class ListQuery(NamedTuple):
    conditions: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int = -1  # -1: all
    offset: int = 0
    marker: str | None = None  # the record before the first one
    reverse: bool = False  # the page before the marker instead


class _Shape(NamedTuple):
    """The properties that determine the text of a statement."""

    kind: Kind
    sees_all: bool
    conditions: tuple[tuple[str, str], ...]


ALL = ListQuery()


async def find(tx: Tx, kind: Kind, viewer: str | None, query: ListQuery = ALL, **params: Any) -> Sequence[Row]:
    """Return rows in order. `viewer` is the project that looks; None sees all. `params`: those of the kind's source."""
    shape, values = _shape(kind, viewer, query)
    order = _complete(kind, query.order)
    if query.limit >= 0:
        values |= {"most": query.limit, "skip": query.offset}
    if query.marker is not None:
        values |= await _marker_values(tx, kind, viewer, query.marker, order, params)
    statement = _page(shape, order, query.limit >= 0, query.marker is not None, query.reverse)
    rows = await tx.all(statement, **values, **params)
    return list(reversed(rows)) if query.reverse else rows


async def count(tx: Tx, kind: Kind, viewer: str | None, query: ListQuery = ALL) -> int:
    """Return the number of records on all pages."""
    shape, values = _shape(kind, viewer, query)
    row = await tx.one(_count(shape), **values)
    return 0 if row is None else int(row["count"])


async def find_one(tx: Tx, kind: Kind, viewer: str | None, record_id: str) -> Row:
    """Return the row. Raise `Refused` if it does not exist, or this project may not see it."""
    row = await look_up(tx, kind, viewer, record_id)
    if row is None:
        raise kind.missing(record_id)
    return row


async def look_up(tx: Tx, kind: Kind, viewer: str | None, key: str, **params: Any) -> Row | None:
    seen_by = {} if viewer is None else {VIEWER: viewer}
    return await tx.one(_by_key(kind, viewer is None), key=key, **seen_by, **params)


async def find_by_ids(tx: Tx, kind: Kind, ids: Sequence[str]) -> list[Row]:
    """Return the rows in the order of the ids."""
    rows = {row["id"]: row for row in await tx.all(_by_ids(kind), ids=list(ids))}
    return [rows[record_id] for record_id in ids if record_id in rows]


def _shape(kind: Kind, viewer: str | None, query: ListQuery) -> tuple[_Shape, dict[str, object]]:
    values: dict[str, object] = {} if viewer is None else {VIEWER: viewer}
    for number, one in enumerate(query.conditions):
        if isinstance(one.value, tuple):
            values |= {f"value{number}_{position}": value for position, value in enumerate(one.value)}
        else:
            values[f"value{number}"] = one.value
    return _Shape(kind, viewer is None, tuple((one.name, one.operator) for one in query.conditions)), values


def _complete(kind: Kind, wanted: Sequence[Order]) -> tuple[Order, ...]:
    keys: dict[str, Order] = {}
    for one in wanted:
        keys.setdefault(one.column, one)
    for column, descending in kind.order:
        keys.setdefault(column, Order(column, wanted[0].descending if kind.follows and wanted else descending))
    return tuple(keys.values())


async def _marker_values(
    tx: Tx, kind: Kind, viewer: str | None, marker: str, order: Sequence[Order], params: Mapping[str, Any]
) -> dict[str, object]:
    row = await look_up(tx, kind, viewer, marker, **params)
    if row is None:
        raise kind.missing(marker) if kind.lost is None else kind.lost(marker)
    values = [(column, row[column]) for column, _ in order]
    return keyset.marker_parameters([_least(kind, column) if value is None else value for column, value in values])


def _least(kind: Kind, column: str) -> Any:
    """Return the value that replaces NULL in comparisons: engines differ in where they sort NULL."""
    return "" if isinstance(kind.table.c[column].type, Text) else 0


# -- statements -------------------------------------------------------------------------------------------------------


@lru_cache(MOST_SHAPES)
def _page(shape: _Shape, order: tuple[Order, ...], limited: bool, marked: bool, reverse: bool) -> Sql:
    keys = [keyset.By(_sortable(shape.kind, one.column), one.descending is not reverse) for one in order]
    statement = _matching(shape, shape.kind.rows(shape.sees_all))
    if marked:
        statement = statement.where(keyset.after(keys))
    statement = statement.order_by(*keyset.ordered(keys))
    if limited:
        statement = statement.limit(bindparam("most", type_=Integer)).offset(bindparam("skip", type_=Integer))
    return Sql(statement)


@lru_cache(MOST_SHAPES)
def _count(shape: _Shape) -> Sql:
    rows = _matching(shape, shape.kind.rows(shape.sees_all))
    return Sql(rows.with_only_columns(func.count().label("count"), maintain_column_froms=True))


@lru_cache(MOST_SHAPES)
def _by_key(kind: Kind, sees_all: bool) -> Sql:
    return Sql(kind.rows(sees_all).where(kind.table.c[kind.key] == bindparam("key")))


@lru_cache(MOST_SHAPES)
def _by_ids(kind: Kind) -> Sql:
    return Sql(select(kind.table).where(in_list(kind.table.c.id, "ids")))


def _matching(shape: _Shape, statement: Select[Any]) -> Select[Any]:
    conditions = enumerate(shape.conditions)
    return statement.where(*(_condition(shape.kind, f"value{number}", *one) for number, one in conditions))


def _condition(kind: Kind, param: str, name: str, operator: str) -> ColumnElement[bool]:
    if name in kind.filters:
        return kind.filters[name](param)
    column: Any = kind.table.c[name]
    if operator == ONE_OF:
        return in_list(column, param)
    if operator == OUTSIDE:
        return or_(column < _bound(column, f"{param}_0"), column >= _bound(column, f"{param}_1"))
    compared: ColumnElement[bool] = _COMPARED[operator](column, _bound(column, param))
    return compared


def _bound(column: Any, param: str) -> Any:
    return bindparam(param, type_=column.type)


def _sortable(kind: Kind, name: str) -> Any:
    column = kind.table.c[name]
    return func.coalesce(column, _least(kind, name)) if column.nullable else column
