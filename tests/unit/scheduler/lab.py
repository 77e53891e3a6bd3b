"""A scheduler over real, small databases, on both engines; its clock moves only when a test says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.runtime import SystemClock, Uuids
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.service import Scheduler
from kilonova.services.compute.aggregates import Aggregates
from kilonova.settings import Settings
from kilonova.store import rows
from kilonova.store.open_stores import OpenStores, open_stores
from kilonova.world import Tx
from tests.support.schemas import empty_schema
from tests.unit.scheduler.worlds import FLAVOR, asked

SMALL = asked(flavor=FLAVOR.__class__(name="s", vcpus=1, memory_mb=128, disk_gb=1))


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Lab:
    def __init__(self, stores: OpenStores, settings: Settings) -> None:
        self.stores, self.clock = stores, Clock()
        self.scheduler = Scheduler(stores, self.clock, random.Random(1), settings)
        self.aggregates = Aggregates(stores.control, SystemClock(), Uuids())

    async def chosen(self, request: Any = SMALL) -> str | None:
        found = (await self.scheduler.place(request, ["cell1"])).decision.chosen
        return found.host if found else None

    async def known(self) -> Hosts:
        await self.chosen()
        return self.scheduler._host_cache.hosts

    async def change(self, table: Any, values: dict[str, Any], **keys: Any) -> None:
        async def body(tx: Tx) -> None:
            await rows.change(tx, table, values, **keys)

        await self.stores.cell("cell1").write(body)


Story = Callable[[Lab], Awaitable[None]]
Run = Callable[..., None]
NAMES = ("control", "placement", "cell0", "cell1")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in NAMES}
    if request.param == "postgres":
        base = request.getfixturevalue("control_database")
        urls = {name: empty_schema(base, name) for name in NAMES}

    async def whole(story: Story, settings: Settings) -> None:
        stores = await open_stores(urls, clock=SystemClock(), upgrading=True)
        try:
            await story(Lab(stores, settings))
        finally:
            await stores.close()

    return lambda story, settings=None: asyncio.run(whole(story, settings or Settings()))
