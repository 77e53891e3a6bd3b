"""Plain row access by column names; each shape of statement is built once and kept. A key of None means IS NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table, bindparam, delete, select, update
from sqlalchemy.dialects.postgresql import insert as insert_unless_there  # both engines understand its text

from kilonova.store.statements import Sql, insert_row
from kilonova.world import Row, Tx

Keys = tuple[str, ...]


def _where(table: Table, keys: Keys, nulls: Keys) -> list[Any]:
    return [table.c[key] == bindparam(f"key_{key}") for key in keys] + [table.c[key].is_(None) for key in nulls]


@cache
def _select(table: Table, keys: Keys, nulls: Keys, lock: bool) -> Sql:
    statement = select(table).where(*_where(table, keys, nulls))
    return Sql(statement.with_for_update() if lock else statement)


@cache
def _update(table: Table, columns: Keys, keys: Keys, nulls: Keys) -> Sql:
    values: dict[str, Any] = {column: bindparam(column) for column in columns}
    return Sql(update(table).where(*_where(table, keys, nulls)).values(values))


@cache
def _delete(table: Table, keys: Keys, nulls: Keys) -> Sql:
    return Sql(delete(table).where(*_where(table, keys, nulls)))


@cache
def _insert(table: Table, columns: Keys, unless_there: bool) -> Sql:
    if not unless_there:
        return Sql(insert_row(table, columns))
    statement = insert_unless_there(table).values({name: bindparam(name) for name in columns})
    return Sql(statement.on_conflict_do_nothing())


def _split(keys: dict[str, Any]) -> tuple[Keys, Keys, dict[str, Any]]:
    given = {key: value for key, value in keys.items() if value is not None}
    nulls = tuple(key for key in keys if key not in given)
    return tuple(given), nulls, {f"key_{key}": value for key, value in given.items()}


async def fetch(tx: Tx, table: Table, *, lock: bool = False, **keys: Any) -> Row | None:
    """The one row with these column values; with `lock`, nobody else changes it before this transaction ends."""
    names, nulls, params = _split(keys)
    return await tx.one(_select(table, names, nulls, lock), **params)


async def fetch_all(tx: Tx, table: Table, **keys: Any) -> Sequence[Row]:
    names, nulls, params = _split(keys)
    return await tx.all(_select(table, names, nulls, False), **params)


async def change(tx: Tx, table: Table, values: dict[str, Any], **keys: Any) -> int:
    """Set columns where the keys match (a compare-and-set when a key is the old value); returns rows changed."""
    names, nulls, params = _split(keys)
    return await tx.run(_update(table, tuple(values), names, nulls), **values, **params)


async def put(tx: Tx, table: Table, *, unless_there: bool = False, **values: Any) -> int:
    return await tx.run(_insert(table, tuple(values), unless_there), **values)


async def remove(tx: Tx, table: Table, **keys: Any) -> int:
    names, nulls, params = _split(keys)
    return await tx.run(_delete(table, names, nulls), **params)
