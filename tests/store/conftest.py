"""The same suite on every engine: `bench.run(story)` gives the story a fresh store with the placement schema and the
scratch table."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.store.postgres import PostgresStore
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade
from kilonova.world import Tx
from tests.store import scratch

NUMBERS = itertools.count()
Story = Callable[[Any], Awaitable[None]]


class WallClock:
    def now(self) -> float:
        return time.time()


async def _create(tx: Tx) -> None:
    await tx.run(scratch.CREATE)


class Workbench:
    """Opens stores on one database and closes them after the story."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._opened: list[Any] = []

    def open(self, **options: Any) -> Any:
        store: Any
        if self.kind == "postgres":
            store = PostgresStore("placement", self.url, **options)
        else:
            path = self.url.removeprefix("sqlite:///")
            options.setdefault("clock", WallClock())
            store = SqliteStore("placement", path, threaded=self.kind == "sqlite", **options)
            store._writer.connection.execute("PRAGMA foreign_keys=ON")  # for the constraint checked at COMMIT
        self._opened.append(store)
        return store

    def run(self, story: Story, seconds: float = 30.0, **options: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(seconds):
                await upgrade(self.url, "placement")
                store = self.open(**options)
                try:
                    await store.write(_create)
                    await story(store)
                finally:
                    for opened in self._opened:
                        await opened.close()

        asyncio.run(bounded())


@pytest.fixture(scope="session")
def postgres_database(postgres: Any) -> str:
    url: str = postgres.create_database("store_suite")
    postgres.sql("ALTER DATABASE store_suite SET deadlock_timeout = '50ms'")
    return url


def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'placement.db'}"


@pytest.fixture
def sqlite_bench(tmp_path: Path) -> Workbench:
    return Workbench("sqlite", sqlite_url(tmp_path))


@pytest.fixture
def threadless_bench(tmp_path: Path) -> Workbench:
    return Workbench("threadless", sqlite_url(tmp_path))


@pytest.fixture
def postgres_bench(postgres_database: str) -> Workbench:
    return Workbench("postgres", f"{postgres_database}?schema=s{next(NUMBERS)}")


@pytest.fixture(params=["sqlite", "threadless", pytest.param("postgres", marks=pytest.mark.postgres)])
def bench(request: pytest.FixtureRequest) -> Workbench:
    chosen: Workbench = request.getfixturevalue(f"{request.param}_bench")
    return chosen


@pytest.fixture(params=["sqlite", "threadless"])
def any_sqlite_bench(request: pytest.FixtureRequest) -> Workbench:
    chosen: Workbench = request.getfixturevalue(f"{request.param}_bench")
    return chosen
