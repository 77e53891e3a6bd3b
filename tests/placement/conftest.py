"""Every story runs on thread-less SQLite and on PostgreSQL; afterwards the books must balance."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.store.postgres import PostgresStore
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade
from tests.placement.books import Books, WallClock

NUMBERS = itertools.count()
Story = Callable[[Books], Awaitable[None]]


@pytest.fixture(scope="session")
def placement_database(fast_postgres: Any) -> str:
    url: str = fast_postgres.create_database("placement_suite")
    return url


@pytest.fixture(params=["threadless", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return f"{request.getfixturevalue('placement_database')}?schema=s{next(NUMBERS)}"
    return f"sqlite:///{tmp_path / 'placement.db'}"


@pytest.fixture
def run(url: str) -> Callable[[Story], None]:
    async def bounded(story: Story) -> None:
        async with asyncio.timeout(30):
            await upgrade(url, "placement")
            store = open_store(url)
            try:
                books = Books(store)
                await story(books)
                await books.check()
            finally:
                await store.close()

    return lambda story: asyncio.run(bounded(story))


def open_store(url: str) -> Any:
    if url.startswith("sqlite:"):
        return SqliteStore("placement", url.removeprefix("sqlite:///"), threaded=False, clock=WallClock())
    return PostgresStore("placement", url)
