"""The databases of a cloud and engines on them, in virtual time: no role runs, so a test calls what it is about."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Table

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.engine.core import Engine
from kilonova.engine.model import Registry
from kilonova.engine.secrets import Seal
from kilonova.operations import REGISTRY
from kilonova.settings import Settings
from kilonova.sim.lab.cloud import SEAL_KEY
from kilonova.sim.lab.database_files import CLOUD_ID, DATABASES, lay_databases
from kilonova.sim.lab.process import SeededIds
from kilonova.sim.loop.event_loop import SimClock, SimLoop
from kilonova.store import rows
from kilonova.store.cell_store import CellStore
from kilonova.store.marks import Marks
from kilonova.store.open_stores import OpenStores
from kilonova.store.roll import Roll
from kilonova.store.sqlite import SqliteStore
from kilonova.world import Tx, World
from tests.support.distinct import distinct_settings
from tests.support.neighbours import zeros

T = TypeVar("T")


class SmallCloud:
    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self.directory = directory
        self.settings = settings or distinct_settings()
        self.loop = SimLoop()
        self.clock = SimClock(self.loop)
        self.hub = MemoryHub()
        lay_databases(directory, DATABASES)
        self._opened: list[OpenStores] = []

    def engine(self, worker: str = "me", registry: Registry = REGISTRY) -> Engine:
        """An engine of a process of its own; an API's has no worker."""
        opened = {name: self._open(name) for name in DATABASES}
        stores = OpenStores(opened.pop("control"), opened.pop("placement"), roll=Roll(CLOUD_ID))
        for name, store in opened.items():
            stores.add_cell(name, CellStore(name, self.clock, store))
        self._opened.append(stores)
        source = random.Random(worker)
        bus = MemoryBus(self.hub, worker or "api")
        world = World(self.clock, SeededIds(source), source, bus, stores=stores, settings=self.settings)
        return Engine(world, registry, worker, Seal(SEAL_KEY))

    def _open(self, name: str) -> SqliteStore:
        path = self.directory / f"{name}.db"
        return SqliteStore(name, path, threaded=False, clock=self.clock, synchronous="OFF")

    async def keep_marks(self, engine: Engine) -> Marks:
        """The engine's process knows the marks as they are now."""
        stores: Any = engine.world.db
        stores.marks = marks = Marks(stores, self.clock)
        await marks.look()
        return marks

    def run(self, story: Callable[[], Awaitable[T]], seconds: float = 600.0) -> T:
        async def whole() -> T:
            async with asyncio.timeout(seconds):
                return await story()

        return self.loop.run_until_complete(whole())

    def close(self) -> None:
        for stores in self._opened:
            stores.drop()
        self.loop.close()


@pytest.fixture
def small_cloud(tmp_path: Path) -> Iterator[SmallCloud]:
    cloud = SmallCloud(tmp_path)
    yield cloud
    cloud.close()


async def put(engine: Engine, database: str, table: Table, **values: Any) -> None:
    """Put a row: 0 in each column that needs a value and has none."""
    db = engine.world.db
    store = {"control": db.control, "placement": db.placement}.get(database) or db.cell(database)

    async def body(tx: Tx) -> None:
        await rows.put(tx, table, **zeros(table, **values))

    await store.write(body)


async def read(engine: Engine, database: str, table: Table, **keys: Any) -> list[dict[str, Any]]:
    """All rows of the table with these values."""
    db = engine.world.db
    store = {"control": db.control, "placement": db.placement}.get(database) or db.cell(database)
    found = await store.read(lambda tx: rows.fetch_all(tx, table, **keys))
    return [{name: row[name] for name in row.keys()} for row in found]  # noqa: SIM118  a row is no mapping
