"""A cloud in this process, wired as `kilonova serve` wires one: stores, one conductor, agents, the in-process bus."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.operations import REGISTRY
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.conductor.service import Conductor
from kilonova.domain.messages import Beat, Orders
from kilonova.engine import run
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.runtime import SystemClock, Uuids
from kilonova.settings import Settings
from kilonova.sim.lab.settings import SIMULATED
from kilonova.store.instruments import Stats
from kilonova.store.open_stores import OpenStores, open_stores
from kilonova.world import Store, World

DATABASES = ("control", "placement", "cell0", "cell1")
SEAL_KEY = b"YmVuY2gtc2VhbC1rZXktb2YtMzItYnl0ZXMtbGVuZ3Q="


@dataclass
class ParentalEngine(Engine):
    """Knows at once when an operation has ended, and only after its commit: the engine tells the parent of each child,
    and here every operation is the child of the future that waits for it."""

    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    def tell(self, parent: str) -> None:
        future = self.waiting.pop(parent, None)
        if future is not None and not future.done():
            future.set_result(None)


async def _tell_parent(engine: Engine, journal: Store, parent: str) -> None:
    """In place of the engine's own, which would look for the parent in the journal."""
    assert isinstance(engine, ParentalEngine)
    engine.tell(parent)


run.notify_parent = _tell_parent


@dataclass
class Cloud:
    stores: OpenStores
    settings: Settings
    hub: MemoryHub = field(default_factory=MemoryHub)
    hardware: Hardware = field(default_factory=Hardware)
    agents: list[Agent] = field(default_factory=list)
    conductor: Conductor | None = None
    beats: int = 0  # heartbeats heard

    def engine(self, worker: str) -> ParentalEngine:
        return ParentalEngine(self._world(worker or "api"), REGISTRY, worker, Seal(SEAL_KEY))

    async def start_conductor(self) -> ParentalEngine:
        engine = self.engine("conductor1")
        self.conductor = Conductor(engine, alone=True)
        handlers = self.conductor.handlers
        answer = handlers.on_beat

        async def count_beat(beat: Beat) -> Orders:
            self.beats += 1
            return await answer(beat)

        handlers.on_beat = count_beat  # type: ignore[method-assign]
        await self.conductor.start()
        return engine

    async def start_agent(self, host: str) -> Agent:
        self.hardware.add_host(host)
        interval = self.settings.default.report_interval
        agent = Agent(self._world(host, host=True), host, REGISTRY, report_interval=interval)
        self.agents.append(agent)
        await agent.start()
        return agent

    async def stop(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self.agents))
        if self.conductor is not None:
            await self.conductor.stop()

    def stats(self, name: str = "cell1") -> Stats:
        store: Any = self.stores.cell(name)
        return Stats(store.stats.commits, store.stats.transactions, store.stats.statements)

    def _world(self, name: str, *, host: bool = False) -> World:
        return World(
            clock=SystemClock(),
            ids=Uuids(),
            random=random.Random(),
            bus=MemoryBus(self.hub, name),
            stores=None if host else self.stores,
            settings=self.settings,
            driver=SimulatedDriver(self.hardware, name) if host else None,
            memory=SimulatedMemory(self.hardware, name) if host else None,
        )


@asynccontextmanager
async def cloud(urls: Mapping[str, str], settings: Settings = SIMULATED) -> Any:
    stores = await open_stores(urls, clock=SystemClock())
    running = Cloud(stores, settings)
    try:
        yield running
    finally:
        await running.stop()
        await stores.close()


def sqlite_urls(directory: Any) -> dict[str, str]:
    return {name: f"sqlite:///{directory}/{name}.db" for name in DATABASES}
