"""The revisions make exactly the tables that the code knows, on both engines, once, and never by accident."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine, create_mock_engine

from kilonova.domain.errors import StoreError
from kilonova.schema.draft import metadata_of
from kilonova.schema.render import configure
from kilonova.schema.revisions import REVISIONS, ROLES, role_of
from kilonova.store.upgrade import status, status_blocking, upgrade, upgrade_blocking
from tests.store.conftest import WallClock

COLUMNS = """
    SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, 3"""
INDEXES = "SELECT tablename, replace(indexdef, $1 || '.', '') FROM pg_indexes WHERE schemaname = $1 ORDER BY 1, 2"
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = $1::regnamespace ORDER BY 1, 2"""


@pytest.mark.parametrize("role", ROLES)
def test_the_revisions_written_down_are_those_in_the_files(role: str) -> None:
    script = ScriptDirectory.from_config(configure(role))
    assert [revision.revision for revision in script.walk_revisions()][::-1] == list(REVISIONS[role])
    assert script.get_heads() == [REVISIONS[role][-1]]


@pytest.mark.parametrize("role", ROLES)
def test_sqlite_has_the_tables_that_the_code_knows(role: str, tmp_path: Path) -> None:
    upgrade_blocking(f"sqlite:///{tmp_path}/a.db", role)
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata_of(role)) == []
    engine.dispose()
    # compare_metadata does not look at the conditions of indexes: compare the very text too.
    upgraded = sqlite3.connect(tmp_path / "a.db")
    created = sqlite3.connect(":memory:")
    for statement in ddl(metadata_of(role), "sqlite://"):
        created.execute(statement)
    assert indexes(upgraded) == indexes(created)


def indexes(connection: sqlite3.Connection) -> list[Any]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql <> '' ORDER BY name")
    return found.fetchall()


def ddl(metadata: MetaData, url: str) -> list[str]:
    statements: list[str] = []
    engine: Any = create_mock_engine(
        url, lambda sql, *_, **__: statements.append(str(sql.compile(dialect=engine.dialect)))
    )
    metadata.create_all(engine, checkfirst=False)
    return statements


@pytest.mark.postgres
@pytest.mark.parametrize("role", ROLES)
def test_postgres_has_the_tables_that_the_code_knows(role: str, postgres_database: str) -> None:
    """Stricter than Alembic's comparison: the catalogs of an upgraded and of a created schema are the same."""
    import asyncpg

    upgraded, created = f"upgraded_{role}", f"created_{role}"

    async def story() -> None:
        await upgrade(f"{postgres_database}?schema={upgraded}", role)
        connection = await asyncpg.connect(postgres_database)
        try:
            await connection.execute(f"CREATE SCHEMA {created}; SET search_path = {created}")
            await connection.execute(";\n".join(ddl(metadata_of(role), "postgresql+asyncpg://")))
            catalogs = []
            for schema in (upgraded, created):
                await connection.execute(f"SET search_path = {schema}")
                await connection.execute("DROP TABLE IF EXISTS alembic_version")
                rows = [await connection.fetch(query, schema) for query in (COLUMNS, INDEXES, CONSTRAINTS)]
                catalogs.append([[tuple(row) for row in each] for each in rows])
            assert catalogs[0] == catalogs[1]
            assert len(catalogs[0][0]) > 30
        finally:
            await connection.close()

    asyncio.run(story())


def test_upgrading_is_once_and_quick(tmp_path: Path) -> None:
    names = ("control", "placement", "cell0", "cell1")
    upgrade_blocking(f"sqlite:///{tmp_path}/warm-up.db", "control")  # imports Alembic
    began = time.monotonic()
    for name in names:
        assert upgrade_blocking(f"sqlite:///{tmp_path}/{name}.db", role_of(name)).current is None
    assert time.monotonic() - began < 0.5
    for name in names:
        assert upgrade_blocking(f"sqlite:///{tmp_path}/{name}.db", role_of(name)).is_current


def test_asking_for_the_status_makes_nothing(tmp_path: Path) -> None:
    assert status_blocking(f"sqlite:///{tmp_path}/a.db", "cell").current is None
    assert list(tmp_path.iterdir()) == []


def test_a_failed_upgrade_changes_nothing(tmp_path: Path) -> None:
    """Something else is in the way: all of the revision is taken back, not only the statement that failed."""
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE workers (id TEXT)")
    with pytest.raises(StoreError, match="workers"):
        upgrade_blocking(f"sqlite:///{path}", "control")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("workers",)]


def test_a_newer_sqlite_schema_is_refused_untouched(tmp_path: Path) -> None:
    from kilonova.store.open_stores import open_store

    path = tmp_path / "a.db"
    url = f"sqlite:///{path}"
    upgrade_blocking(url, "cell")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in tmp_path.iterdir()}
    assert status_blocking(url, "cell").is_newer
    message = r"newer Kilonova \(revision 9999\); this one knows up to \w+; nothing was changed"
    with pytest.raises(StoreError, match=message):
        upgrade_blocking(url, "cell")
    for upgrading in (True, False):
        with pytest.raises(StoreError, match=message):
            asyncio.run(open_store("cell1", url, clock=WallClock(), upgrading=upgrading))
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in tmp_path.iterdir()} == before


@pytest.mark.postgres
def test_a_newer_postgres_schema_is_refused_untouched(postgres: Any) -> None:
    url = postgres.create_database("store_newer")

    async def story() -> None:
        await asyncio.gather(*(upgrade(url, "placement") for _ in range(4)))  # they take turns
        assert (await status(url, "placement")).is_current
        postgres.sql("UPDATE alembic_version SET version_num = '9999'", "store_newer")
        with pytest.raises(StoreError, match="newer Kilonova"):
            await upgrade(url, "placement")

    asyncio.run(story())
    assert postgres.sql("SELECT version_num FROM alembic_version", "store_newer") == "9999"


def test_a_database_of_another_role_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cell1.db"
    upgrade_blocking(url, "cell")
    with pytest.raises(StoreError, match=r"cell1.db is a cell database, not a control database"):
        upgrade_blocking(url, "control")


@pytest.mark.postgres
def test_a_failed_upgrade_of_postgres_changes_nothing(postgres: Any) -> None:
    url = postgres.create_database("store_in_the_way")
    postgres.sql("CREATE TABLE workers (id TEXT)", "store_in_the_way")
    with pytest.raises(StoreError, match="workers"):
        upgrade_blocking(url, "control")
    assert postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", "store_in_the_way") == "workers"


def test_an_old_schema_is_refused_where_upgrading_was_not_asked(tmp_path: Path) -> None:
    from kilonova.store.open_stores import open_store

    with pytest.raises(StoreError, match="kilonova db upgrade"):
        asyncio.run(open_store("control", f"sqlite:///{tmp_path}/a.db", clock=WallClock(), upgrading=False))
    assert list(tmp_path.iterdir()) == []


def test_opening_what_is_up_to_date_needs_no_alembic_and_no_asyncpg(tmp_path: Path) -> None:
    upgrade_blocking(f"sqlite:///{tmp_path}/a.db", "control")
    code = f"""
import asyncio, sys
from kilonova.store.open_stores import open_store
class Clock:
    def now(self): return 0.0
async def main():
    store = await open_store("control", "sqlite:///{tmp_path}/a.db", clock=Clock())
    await store.close()
asyncio.run(main())
assert not {{"alembic", "asyncpg"}} & set(sys.modules), "too much is imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
