"""PostgreSQL schemas that tests use one after the other: making the tables takes longer than most tests."""

from __future__ import annotations

import asyncio

import asyncpg

_EMPTY = """
DO $$
DECLARE one record;
BEGIN
    FOR one IN
        SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'alembic_version'
    LOOP
        EXECUTE format('DELETE FROM %I', one.tablename);
    END LOOP;
    FOR one IN SELECT sequencename FROM pg_sequences WHERE schemaname = current_schema() LOOP
        EXECUTE format('ALTER SEQUENCE %I RESTART', one.sequencename);
    END LOOP;
END $$
"""


def empty_schema(database: str, name: str) -> str:
    """Return the URL of a schema whose tables are empty, or not made yet. No two tests may use one at the same time."""
    asyncio.run(_empty(database, name))
    return f"{database}?schema={name}"


async def _empty(database: str, name: str) -> None:
    settings = {"search_path": name, "lock_timeout": "10s"}  # somebody may have left a transaction open
    connection = await asyncpg.connect(database, server_settings=settings)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()
