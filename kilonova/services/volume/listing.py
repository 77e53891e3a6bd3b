"""Lists of volumes, snapshots and attachments: which ones, in which order, from where on. One statement per shape of
question, built once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Integer, Table, and_, bindparam, func, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import attachments, snapshots, volume_metadata, volumes
from kilonova.services.ordering import Order as Order
from kilonova.services.ordering import complete
from kilonova.services.volume.volume import MOST_SHOWN, USER
from kilonova.store import keyset, rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

EQUAL, OTHER, ABOVE, AT_LEAST, BELOW, AT_MOST, LIKE, HAS = "eq", "neq", "gt", "gte", "lt", "lte", "like", "has"
COMPARISONS = (EQUAL, OTHER, ABOVE, AT_LEAST, BELOW, AT_MOST)
SHAPES_KEPT = 256  # anybody can ask in a new shape; the oldest is forgotten
TABLES: dict[str, Table] = {"volume": volumes, "snapshot": snapshots, "attachment": attachments}
_TEXTS = ("name", "description", "server_id", "host", "snapshot_id", "source_id", "migration_status")


class VolumeCondition(NamedTuple):
    column: str  # of HAS: the kind of metadata
    operator: str
    value: Any  # of HAS: name and value


class VolumeQuery(NamedTuple):
    project_id: str | None = None  # None: of all
    conditions: tuple[VolumeCondition, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int = 1000
    offset: int = 0
    marker: str = ""
    nothing: bool = False  # it was asked for what nothing has


class ListResult(NamedTuple):
    rows: Sequence[Row]
    total: int  # of all, not only of this page; 0 when nobody asked


class _VolumeQueryShape(NamedTuple):
    """All that changes the text of the statement."""

    noun: str
    of_project: bool
    conditions: tuple[tuple[str, str], ...]


async def find(tx: Tx, noun: str, wanted: VolumeQuery, *, counted: bool = False) -> ListResult:
    if wanted.nothing:
        return ListResult([], 0)
    shape = _VolumeQueryShape(
        noun, wanted.project_id is not None, tuple((one.column, one.operator) for one in wanted.conditions)
    )
    values = _values(wanted)
    order = complete(wanted.order)
    after = await _marked(tx, noun, wanted, order) if wanted.marker else {}
    page = _page(shape, order, bool(wanted.marker))
    found = await tx.all(page, **values, **after, most=wanted.limit, skip=wanted.offset) if wanted.limit else []
    return ListResult(found, await _count(tx, shape, values) if counted else 0)


async def summary(tx: Tx, project_id: str | None) -> tuple[int, int, dict[str, list[str]]]:
    """Return the number of volumes, their GB, and the values of each name in their metadata."""
    shape, values = (
        _VolumeQueryShape("volume", project_id is not None, ()),
        {} if project_id is None else {"project": project_id},
    )
    row = await tx.one(_sums(shape), **values)
    assert row is not None
    metadata: dict[str, list[str]] = {}
    for each in await tx.all(_distinct(shape), **values):
        metadata.setdefault(each["name"], []).append(each["value"])
    return row["count"], int(row["size"]), metadata


def _values(wanted: VolumeQuery) -> dict[str, Any]:
    values: dict[str, Any] = {} if wanted.project_id is None else {"project": wanted.project_id}
    for number, one in enumerate(wanted.conditions):
        if one.operator == HAS:
            values[f"name{number}"], values[f"value{number}"] = one.value
        else:
            values[f"value{number}"] = one.value
    return values


async def _marked(tx: Tx, noun: str, wanted: VolumeQuery, order: Sequence[Order]) -> dict[str, Any]:
    row = await rows.fetch(tx, TABLES[noun], id=wanted.marker)
    if row is None or (wanted.project_id is not None and row["project_id"] != wanted.project_id):
        raise Refused(f"{noun}_not_found", f"The marker {wanted.marker[:MOST_SHOWN]} is not a {noun} that you can see.")
    return keyset.place([_none(column, row[column]) for column, _ in order])


async def _count(tx: Tx, shape: _VolumeQueryShape, values: dict[str, Any]) -> int:
    row = await tx.one(_counted(shape), **values)
    return 0 if row is None else int(row["count"])


def _none(column: str, value: Any) -> Any:
    """Return the value that replaces NULL in comparisons: engines differ in where they sort NULL."""
    return ("" if column in _TEXTS else 0) if value is None else value


# -- statements -------------------------------------------------------------------------------------------------------


@lru_cache(SHAPES_KEPT)
def _page(shape: _VolumeQueryShape, order: tuple[Order, ...], marked: bool) -> Sql:
    table = TABLES[shape.noun]
    where = _where(shape)
    keys = [keyset.By(_sortable(table, one.column), one.descending) for one in order]
    if marked:
        where.append(keyset.after(keys))
    most, skip = bindparam("most", type_=Integer), bindparam("skip", type_=Integer)
    return Sql(select(table).where(*where).order_by(*keyset.ordered(keys)).limit(most).offset(skip))


@lru_cache(SHAPES_KEPT)
def _counted(shape: _VolumeQueryShape) -> Sql:
    return Sql(select(func.count().label("count")).select_from(TABLES[shape.noun]).where(*_where(shape)))


@lru_cache(SHAPES_KEPT)
def _sums(shape: _VolumeQueryShape) -> Sql:
    size = func.coalesce(func.sum(volumes.c.size), 0).label("size")
    return Sql(select(func.count().label("count"), size).select_from(volumes).where(*_where(shape)))


@lru_cache(SHAPES_KEPT)
def _distinct(shape: _VolumeQueryShape) -> Sql:
    columns = (volume_metadata.c.name, volume_metadata.c.value)
    both = volume_metadata.join(volumes, volumes.c.id == volume_metadata.c.thing_id)
    statement = select(*columns).select_from(both).where(volume_metadata.c.kind == USER, *_where(shape))
    return Sql(statement.distinct().order_by(*columns))


def _where(shape: _VolumeQueryShape) -> list[ColumnElement[bool]]:
    table = TABLES[shape.noun]
    where: list[ColumnElement[bool]] = [table.c.project_id == bindparam("project")] if shape.of_project else []
    return where + [_condition(table, number, *one) for number, one in enumerate(shape.conditions)]


def _condition(table: Table, number: int, name: str, operator: str) -> ColumnElement[bool]:
    value = f"value{number}"
    if operator == HAS:
        told = and_(
            volume_metadata.c.kind == name,
            volume_metadata.c.name == bindparam(f"name{number}"),
            volume_metadata.c.value == bindparam(value),
        )
        return table.c.id.in_(select(volume_metadata.c.thing_id).where(told))
    column: Any = table.c[name]
    given: Any = bindparam(value, type_=column.type)
    if operator == LIKE:
        return and_(column.like(given, escape="\\"))
    compared = {
        OTHER: column != given,
        ABOVE: column > given,
        AT_LEAST: column >= given,
        BELOW: column < given,
        AT_MOST: column <= given,
    }
    return compared[operator] if operator in compared else in_list(table.c[name], value)


def _sortable(table: Table, column: str) -> ColumnElement[Any]:
    found = table.c[column]
    return func.coalesce(found, _none(column, None)) if found.nullable else found
