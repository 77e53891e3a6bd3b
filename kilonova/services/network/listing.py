"""Finding what a project may see: filters on any attribute, sorting, paging by marker. Built from the kinds.

Every shape of statement (which filters, which order, whose view) is built once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Integer, bindparam, func, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.errors import Refused
from kilonova.schema.tables.network import fixed_ips, port_groups, tags
from kilonova.services.network.addresses import shown
from kilonova.services.network.kinds import KINDS, VIEWER, Kind
from kilonova.store import keyset
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

TAG_FILTERS = ("tags", "tags-any", "not-tags", "not-tags-any")
PORT_FILTERS = ("fixed_ips.ip_address", "fixed_ips.subnet_id", "security_groups")
MOST_VALUES = 1000

Sorts = tuple[tuple[str, bool], ...]  # attribute, ascending


class Search(msgspec.Struct, frozen=True, kw_only=True):
    filters: dict[str, list[str]] = {}
    sorts: Sorts = ()
    limit: int = 0  # 0: all
    marker: str = ""
    reverse: bool = False  # the page before the marker


ALL = Search()


async def find(tx: Tx, kind: Kind, viewer: str | None, search: Search = ALL) -> Sequence[Row]:
    """Rows in order. `viewer` is the project that looks; None sees everything."""
    params: dict[str, Any] = {} if viewer is None else {VIEWER: viewer}
    values = _values(kind, search.filters)
    for number, name in enumerate(sorted(values)):
        params[f"filter{number}"] = values[name]
        if name in ("tags", "not-tags"):
            params[f"count{number}"] = len(set(values[name]))
    sorts = _sorts(kind, search.sorts)
    if search.limit:
        params["most"] = search.limit
    if search.marker:
        params |= await _marked(tx, kind, viewer, search.marker, sorts)
    shape = (kind.name, viewer is None, tuple(sorted(values)), sorts)
    found = await tx.all(_statement(*shape, bool(search.limit), bool(search.marker), search.reverse), **params)
    return list(reversed(found)) if search.reverse else found


async def find_one(tx: Tx, kind: Kind, viewer: str | None, thing_id: str) -> Row:
    """Return the row. Raises `Refused` if it does not exist, or this project may not see it."""
    params = {"id": thing_id} if viewer is None else {"id": thing_id, VIEWER: viewer}
    row = await tx.one(_by_id(kind.name, viewer is None), **params)
    if row is None:
        raise kind.missing(thing_id)
    return row


async def find_by_ids(tx: Tx, kind: Kind, ids: Sequence[str]) -> list[Row]:
    """Return the rows in the order of the ids."""
    found = {row["id"]: row for row in await tx.all(_by_ids(kind.name), ids=list(ids))}
    return [found[thing_id] for thing_id in ids if thing_id in found]


# -- what was asked ---------------------------------------------------------------------------------------------------


def _values(kind: Kind, filters: dict[str, list[str]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, texts in filters.items():
        if len(texts) > MOST_VALUES:
            raise Refused("bad_request", f"A filter may have {MOST_VALUES} values; {name} has {len(texts)}.")
        if name in TAG_FILTERS and "tags" in kind.more:
            found[name] = [tag for text in texts for tag in text.split(",")]
        elif name in PORT_FILTERS and kind.name == "port":
            found[name] = texts
        else:
            found[name] = _read(kind, name, texts)
    return found


def _read(kind: Kind, name: str, texts: list[str]) -> list[Any]:
    _, form = kind.attributes.get(name, ("", None))
    if form is None or form.read is None:
        raise Refused("bad_request", f"'{shown(name)}' is not an attribute that {kind.words}s can be filtered by.")
    try:
        return [form.read(text) for text in texts]
    except ValueError as error:
        raise Refused("bad_request", f"'{shown(str(error))}' is not a value of {name}.") from None


def _sorts(kind: Kind, wanted: Sorts) -> Sorts:
    """Return the requested order, then by id, so that it is unique and a page has a definite end."""
    sorts: list[tuple[str, bool]] = []
    for name, ascending in wanted:
        column, form = kind.attributes.get(name, ("", None))
        if form is None or form.show is msgspec.json.decode:
            raise Refused("bad_request", f"'{shown(name)}' is not an attribute that {kind.words}s can be sorted by.")
        if column not in {column for column, _ in sorts}:
            sorts.append((column, ascending))
    if "id" not in {column for column, _ in sorts}:
        sorts.append(("id", True))
    return tuple(sorts)


async def _marked(tx: Tx, kind: Kind, viewer: str | None, marker: str, sorts: Sorts) -> dict[str, Any]:
    row = await find_one(tx, kind, viewer, marker)
    return keyset.place([row[column] for column, _ in sorts])


# -- statements -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _by_id(name: str, sees_all: bool) -> Sql:
    kind = KINDS[name]
    statement = select(kind.table).where(kind.table.c.id == bindparam("id"))
    return Sql(statement if sees_all else statement.where(kind.visible()))


@lru_cache(maxsize=64)
def _by_ids(name: str) -> Sql:
    table = KINDS[name].table
    return Sql(select(table).where(in_list(table.c.id, "ids")))


@lru_cache(maxsize=512)
def _statement(
    name: str, sees_all: bool, filters: tuple[str, ...], sorts: Sorts, limited: bool, marked: bool, reverse: bool
) -> Sql:
    kind = KINDS[name]
    statement = select(kind.table)
    if not sees_all:
        statement = statement.where(kind.visible())
    for number, attribute in enumerate(filters):
        statement = statement.where(_filter(kind, attribute, number))
    order = [keyset.By(kind.table.c[column], ascending is reverse) for column, ascending in sorts]
    if marked:
        statement = statement.where(keyset.after(order))
    statement = statement.order_by(*keyset.ordered(order))
    if limited:
        statement = statement.limit(bindparam("most", type_=Integer))
    return Sql(statement)


def _filter(kind: Kind, name: str, number: int) -> ColumnElement[bool]:
    values, own = f"filter{number}", kind.table.c.id
    if name in TAG_FILTERS and name not in kind.attributes:
        tagged = select(tags.c.thing_id).where(in_list(tags.c.tag, values))
        if name in ("tags", "not-tags"):  # all of them
            tagged = tagged.group_by(tags.c.thing_id).having(func.count() == bindparam(f"count{number}", type_=Integer))
        return own.not_in(tagged) if name.startswith("not-") else own.in_(tagged)
    if name == "fixed_ips.ip_address":
        return own.in_(select(fixed_ips.c.port_id).where(in_list(fixed_ips.c.address, values)))
    if name == "fixed_ips.subnet_id":
        return own.in_(select(fixed_ips.c.port_id).where(in_list(fixed_ips.c.subnet_id, values)))
    if name == "security_groups":
        return own.in_(select(port_groups.c.port_id).where(in_list(port_groups.c.group_id, values)))
    return in_list(kind.table.c[kind.attributes[name][0]], values)
