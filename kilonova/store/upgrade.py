"""Bringing a database to the schema this program knows, in one transaction, or leaving it exactly as it was."""

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
    """Reads only: asking about a file that is not there does not make it. `seconds` are for connecting."""
    place = parse_url(url)
    if isinstance(place, SqliteUrl):
        return _sqlite_status(place, role)
    connection = await _connect_postgres(place, seconds)
    try:
        return await _postgres_status(connection, place, role)
    finally:
        await connection.close()


async def upgrade(url: str, role: str, seconds: float = CONNECT_SECONDS) -> SchemaStatus:
    """Returns what it was before. Raises StoreError, with nothing changed, when it is newer than this program."""
    place = parse_url(url)
    if isinstance(place, SqliteUrl):
        return _upgrade_sqlite(place, role)
    connection = await _connect_postgres(place, seconds)
    try:
        async with connection.transaction():
            return await _upgrade_postgres(connection, place, role)
    finally:
        await connection.close()


def status_blocking(url: str, role: str) -> SchemaStatus:
    return asyncio.run(status(url, role))


def upgrade_blocking(url: str, role: str) -> SchemaStatus:
    return asyncio.run(upgrade(url, role))


def _sqlite_status(place: SqliteUrl, role: str) -> SchemaStatus:
    if not place.path.exists():
        return SchemaStatus(str(place.path), role, None)
    connection = connect_to_look(role, place.path)
    try:
        return SchemaStatus(str(place.path), role, _sqlite_revision(connection))
    except sqlite3.Error as error:
        raise StoreError(why_not(role, place.path, error)) from error
    finally:
        connection.close()


def _sqlite_revision(connection: sqlite3.Connection) -> str | None:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def _upgrade_sqlite(place: SqliteUrl, role: str) -> SchemaStatus:
    before = _sqlite_status(place, role)
    before.refuse_newer()
    if before.is_current:
        return before
    from kilonova.schema.render import render_upgrade

    existed = place.path.exists()
    try:
        _run_script(place, role, render_upgrade(role, "sqlite", before.current))
    except StoreError:
        if not existed:
            remove_database(place.path)
        raise
    return before


def _run_script(place: SqliteUrl, role: str, script: str) -> None:
    connection = connect(role, place.path)
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise StoreError(f"cannot upgrade the database {role} at {place.path}: {error}") from error
    finally:
        connection.close()


async def _connect_postgres(place: PostgresUrl, seconds: float) -> Any:
    from kilonova.store.postgres_connections import connect_postgres

    return await connect_postgres(place, seconds=seconds)


async def _postgres_status(connection: Any, place: PostgresUrl, role: str) -> SchemaStatus:
    is_there = await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
    current = await connection.fetchval("SELECT version_num FROM alembic_version") if is_there else None
    return SchemaStatus(str(place), role, current)


async def _upgrade_postgres(connection: Any, place: PostgresUrl, role: str) -> SchemaStatus:
    await connection.execute(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
    before = await _postgres_status(connection, place, role)
    before.refuse_newer()
    if before.is_current:
        return before
    from kilonova.schema.render import render_upgrade
    from kilonova.store.postgres_connections import run_script

    script = render_upgrade(role, "postgresql", before.current)
    if place.schema:
        script = f'CREATE SCHEMA IF NOT EXISTS "{place.schema}";\n{script}'
    await run_script(connection, f"cannot upgrade the {role} database {place}", script)
    return before
