"""Databases of its own for each test, on SQLite and on PostgreSQL: the same story on both."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.store.open_stores import open_stores
from kilonova.store.postgres import PostgresStore
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade
from tests.support.schemas import empty_schema

Story = Callable[[Any], Awaitable[None]]


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Ids:
    def uuid(self) -> str:
        return str(uuid.uuid4())


@pytest.fixture(scope="session")
def control_database(fast_postgres: Any) -> str:
    url: str = fast_postgres.create_database(f"control_suite_{uuid.uuid4().hex[:8]}")
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def control(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on an empty control database."""
    if request.param == "postgres":
        url = empty_schema(request.getfixturevalue("control_database"), "control")
    else:
        url = f"sqlite:///{tmp_path / 'control.db'}"

    return lambda story: asyncio.run(open_control(url, story))


async def open_control(url: str, story: Story, seconds: float = 30.0) -> None:
    """Run a story on a new control database."""
    async with asyncio.timeout(seconds):
        await upgrade(url, "control")
        store = _open(url)
        try:
            await story(store)
        finally:
            await store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on all the databases of an empty cloud."""
    names = ("control", "placement", "cell0", "cell1")
    if request.param == "postgres":
        base = request.getfixturevalue("control_database")
        urls = {name: empty_schema(base, name) for name in names}
    else:
        urls = {name: f"sqlite:///{tmp_path / name}.db" for name in names}

    async def bounded(story: Story) -> None:
        async with asyncio.timeout(60):
            stores = await open_stores(urls, clock=Clock(), upgrading=True)
            try:
                await story(stores)
            finally:
                await stores.close()

    return lambda story: asyncio.run(bounded(story))


def _open(url: str) -> Any:
    if url.startswith("sqlite:"):
        return SqliteStore("control", url.removeprefix("sqlite:///"), threaded=True, clock=Clock())
    return PostgresStore("control", url)
