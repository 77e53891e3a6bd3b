"""Databases that go away and come back: their servers refuse at once, or hang until whoever asks gives up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kilonova.domain.errors import Unreachable
from kilonova.store.cell_store import DroppableStore
from kilonova.store.instruments import CommitFaults, Stats
from kilonova.world import Body, Row

T = TypeVar("T")
HANGING_SECONDS = 5.0  # as long as a statement may take in a cell ([database] cell_timeout)
REFUSES, HANGS = "refuses", "hangs"


@dataclass
class Outages:
    """Of one cloud, by database."""

    now: dict[str, str] = field(default_factory=dict)  # database: REFUSES or HANGS

    def begin(self, database: str, how: str = REFUSES) -> None:
        self.now[database] = how

    def end(self, database: str) -> None:
        self.now.pop(database, None)

    def stop(self) -> None:
        self.now.clear()

    def over(self, store: DroppableStore) -> DroppableStore:
        return Breakable(store, self)

    async def check(self, database: str) -> None:
        how = self.now.get(database)
        if how == HANGS:
            await asyncio.sleep(HANGING_SECONDS)
        if how is not None:
            raise Unreachable(f"{database} {how}")


class Breakable:
    """See world.Store."""

    def __init__(self, store: DroppableStore, outages: Outages) -> None:
        self.name = store.name
        self.inner = store
        self._outages = outages

    @property
    def halted(self) -> str:
        return self.inner.halted

    @halted.setter
    def halted(self, why: str) -> None:
        self.inner.halted = why

    @property
    def stats(self) -> Stats:
        return self.inner.stats

    @property
    def faults(self) -> CommitFaults | None:
        return self.inner.faults

    @faults.setter
    def faults(self, faults: CommitFaults | None) -> None:
        self.inner.faults = faults

    async def write(self, body: Body[T]) -> T:
        await self._outages.check(self.name)
        return await self.inner.write(body)

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        await self._outages.check(self.name)
        return await self.inner.read(body, few=few)

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        await self._outages.check(self.name)
        return await self.inner.ask(statement, **params)

    async def close(self) -> None:
        await self.inner.close()

    def drop(self) -> None:
        self.inner.drop()
