"""The check that a database is free for a new cell: it is empty, or has only a cell's empty tables."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import func, select

from kilonova.domain.errors import StoreError
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.journal import operations
from kilonova.store.instruments import ReadsClock
from kilonova.store.sqlite_connection import connect_to_look, why_not
from kilonova.store.statements import Sql
from kilonova.store.upgrade import status
from kilonova.store.url import PostgresUrl, SqliteUrl, parse_url
from kilonova.world import Tx

_FILLED = (hosts, servers, operations)
_COUNTS = {table.name: Sql(select(func.count().label("n")).select_from(table)) for table in _FILLED}


async def refuse_unless_vacant(name: str, url: str, clock: ReadsClock) -> None:
    """Raise StoreError if the database is not empty, of another kind, or newer; or Unreachable. Write nothing."""
    schema = await status(url, "cell")
    schema.refuse_newer()
    if schema.current is None:
        if count := await _tables(url):
            raise StoreError(f"{schema.where} is not empty: it has {count} tables of another program; use an empty one")
        return
    schema.refuse_other()
    for table, count in (await _rows(name, url, clock)).items():
        if count:
            raise StoreError(f"{schema.where} is not empty: another cell has {count} {table} there; use an empty one")


async def _rows(name: str, url: str, clock: ReadsClock) -> dict[str, int]:
    from kilonova.store.open_stores import open_store  # which opens databases that are vacant by this module

    async def body(tx: Tx) -> dict[str, int]:
        counted = {table: await tx.one(statement) for table, statement in _COUNTS.items()}
        return {table: row["n"] for table, row in counted.items() if row is not None}

    store = await open_store(name, url, clock=clock, upgrading=False)
    try:
        return await store.read(body)
    finally:
        await store.close()


async def _tables(url: str) -> int:
    location = parse_url(url)
    return _sqlite_tables(location) if isinstance(location, SqliteUrl) else await _postgres_tables(location)


def _sqlite_tables(location: SqliteUrl) -> int:
    if not location.path.exists():
        return 0
    connection = connect_to_look("cell", location.path)
    try:
        (count,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
        return int(count)
    except sqlite3.Error as error:
        raise StoreError(why_not("cell", location.path, error)) from error
    finally:
        connection.close()


async def _postgres_tables(location: PostgresUrl) -> int:
    from kilonova.store.postgres_connections import connect_postgres

    connection: Any = await connect_postgres(location)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"))
    finally:
        await connection.close()
