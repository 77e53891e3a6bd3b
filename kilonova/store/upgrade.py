"""Upgrade a database to the schema that this program knows, in one transaction, or leave it exactly as it was."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from kilonova.domain.errors import StoreError
from kilonova.schema.revisions import SchemaStatus
from kilonova.store.sqlite_connection import connect, connect_to_look, remove_database, why_not
from kilonova.store.url import PostgresUrl, SqliteUrl, parse_url

CONNECT_SECONDS = 10.0
_UPGRADE_LOCK = 0x6B696C6F  # any number, the same in every process: two upgrades of one database take turns


async def status(url: str, role: str, seconds: float = CONNECT_SECONDS) -> SchemaStatus:
    """Return the schema's status. Reads only: a missing file is not created. `seconds` are for connecting."""
    location = parse_url(url)
    if isinstance(location, SqliteUrl):
        return _sqlite_status(location, role)
    connection = await _connect_postgres(location, seconds)
    try:
        return await _postgres_status(connection, location, role)
    finally:
        await connection.close()


async def upgrade(url: str, role: str, seconds: float = CONNECT_SECONDS) -> SchemaStatus:
    """Return the status before. Raise StoreError, with nothing changed, when it is newer than this program."""
    location = parse_url(url)
    if isinstance(location, SqliteUrl):
        return _upgrade_sqlite(location, role)
    connection = await _connect_postgres(location, seconds)
    try:
        async with connection.transaction():
            return await _upgrade_postgres(connection, location, role)
    finally:
        await connection.close()


def status_blocking(url: str, role: str) -> SchemaStatus:
    return asyncio.run(status(url, role))


def upgrade_blocking(url: str, role: str) -> SchemaStatus:
    return asyncio.run(upgrade(url, role))


def _sqlite_status(location: SqliteUrl, role: str) -> SchemaStatus:
    if not location.path.exists():
        return SchemaStatus(str(location.path), role, None)
    connection = connect_to_look(role, location.path)
    try:
        return SchemaStatus(str(location.path), role, _sqlite_revision(connection))
    except sqlite3.Error as error:
        raise StoreError(why_not(role, location.path, error)) from error
    finally:
        connection.close()


def _sqlite_revision(connection: sqlite3.Connection) -> str | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def _upgrade_sqlite(location: SqliteUrl, role: str) -> SchemaStatus:
    before = _sqlite_status(location, role)
    before.refuse_newer()
    if before.is_current:
        return before
    from kilonova.schema.render import render_upgrade

    existed = location.path.exists()
    try:
        _run_script(location, role, render_upgrade(role, "sqlite", before.current))
    except StoreError:
        if not existed:
            remove_database(location.path)
        raise
    return before


def _run_script(location: SqliteUrl, role: str, script: str) -> None:
    connection = connect(role, location.path)
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise StoreError(f"cannot upgrade the database {role} at {location.path}: {error}") from error
    finally:
        connection.close()


async def _connect_postgres(location: PostgresUrl, seconds: float) -> Any:
    from kilonova.store.postgres_connections import connect_postgres

    return await connect_postgres(location, seconds=seconds)


async def _postgres_status(connection: Any, location: PostgresUrl, role: str) -> SchemaStatus:
    is_there = await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
    current = await connection.fetchval("SELECT version_num FROM alembic_version") if is_there else None
    return SchemaStatus(str(location), role, current)


async def _upgrade_postgres(connection: Any, location: PostgresUrl, role: str) -> SchemaStatus:
    await connection.execute(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
    before = await _postgres_status(connection, location, role)
    before.refuse_newer()
    if before.is_current:
        return before
    from kilonova.schema.render import render_upgrade
    from kilonova.store.postgres_connections import run_script

    script = render_upgrade(role, "postgresql", before.current)
    if location.schema:
        script = f'CREATE SCHEMA IF NOT EXISTS "{location.schema}";\n{script}'
    await run_script(connection, f"cannot upgrade the {role} database {location}", script)
    return before
