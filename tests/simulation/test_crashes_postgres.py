"""The same crashes with the cloud's databases on a real PostgreSQL: a killed role's connections are cut, the server
rolls back what it had begun."""

import asyncio
import os

import asyncpg
import pytest

from kilonova.schema.revisions import role_of
from kilonova.sim.commands import chosen_points
from kilonova.sim.crashes.crashes import count_points, crash_at
from kilonova.sim.crashes.scenarios import SCENARIOS
from kilonova.sim.lab.database_files import DATABASES as ONE_CELL
from kilonova.sim.lab.virtual_postgres import on_postgres
from kilonova.store.upgrade import upgrade_blocking

DATABASES = (*ONE_CELL, "cell2")
pytestmark = pytest.mark.postgres
FULL = bool(os.environ.get("KILONOVA_FULL"))
SAMPLE = int(os.environ.get("KILONOVA_SAMPLE", "0" if FULL else "2"))


class Databases:
    """Five schemas of one database, emptied before each run."""

    def __init__(self, url):
        self.url = url
        self.urls = {name: f"{url}?schema={name}" for name in DATABASES}
        asyncio.run(self._execute(*(f"CREATE SCHEMA {name}" for name in DATABASES)))
        for name in DATABASES:
            upgrade_blocking(self.urls[name], role_of(name))
        self.tables = asyncio.run(self._tables())

    def fresh(self):
        asyncio.run(self._empty())
        return on_postgres(self.urls)

    async def _empty(self):
        """Row by row: to truncate so many tables took a fifth of the time of a crash."""
        await self._execute(
            "; ".join(f"DELETE FROM {name}" for name in self.tables),
            "SELECT setval(format('%I.%I', schemaname, sequencename), 1, false) FROM pg_sequences",
        )

    async def _execute(self, *statements):
        connection = await asyncpg.connect(self.url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    async def _tables(self):
        connection = await asyncpg.connect(self.url)
        found = await connection.fetch(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY($1) AND tablename <> 'alembic_version'",
            list(DATABASES),
        )
        await connection.close()
        return [f"{row['schemaname']}.{row['tablename']}" for row in found]


@pytest.fixture(scope="module")
def databases(fast_postgres):
    fast_postgres.create_database("crashes")
    return Databases(fast_postgres.url("crashes"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_a_crash_at_any_point_leaves_nothing_behind_on_postgres(scenario, databases):
    """One role dies, then all of them; of a sample, one scenario after the other tries one of both."""
    for everyone in (False, True) if FULL else (SCENARIOS.index(scenario) % 2 == 1,):
        moments = count_points(scenario, databases.fresh, everyone=everyone)
        tried = chosen_points(scenario.name, moments, SAMPLE, seed=1)
        print(f"{scenario.name} on PostgreSQL: {moments} moments, {len(tried)} crashes tried")
        for moment in tried:
            crash = crash_at(scenario, moment, everyone=everyone, databases=databases.fresh)
            assert not crash.violations, f"at moment {crash.point} ({crash.who}): {crash.violations}"
