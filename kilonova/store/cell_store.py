"""A cell's database as everybody uses it. While it does not answer, everybody hears so at once, and one task looks now
and then whether it is back: a cell that is down costs the others nothing, and returns by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kilonova.domain.errors import StoreError, Unreachable, WrongStore
from kilonova.store.instruments import Faults, ReadsClock, Stats
from kilonova.world import Body, Row, Store, Tx

logger = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds between two looks at a database that is down


class DroppableStore(Store, Protocol):
    faults: Faults | None

    @property
    def stats(self) -> Stats: ...

    def drop(self) -> None: ...


Opener = Callable[[], Awaitable[DroppableStore]]
Check = Callable[[Store], Awaitable[None]]


@dataclass(frozen=True)
class Outage:
    since: float
    why: str
    is_wrong: bool = False  # another database answers, or an empty one


class CellStore:
    """See world.Store."""

    def __init__(
        self,
        name: str,
        clock: ReadsClock,
        store: DroppableStore | None,
        opener: Opener | None = None,
        *,
        address: str = "",
        check: Check | None = None,
    ) -> None:
        """`opener` is for a database that did not answer when it should have been opened. `check` raises when another
        database answers than the one that was lost."""
        self.name = name
        self.address = address
        self.outage: Outage | None = None
        self._clock = clock
        self._store = store
        self._opener = opener
        self._check = check
        self._looking: asyncio.Task[None] | None = None

    @property
    def stats(self) -> Stats:
        return Stats() if self._store is None else self._store.stats

    @property
    def faults(self) -> Faults | None:
        """What a simulator breaks in it."""
        return None if self._store is None else self._store.faults

    @faults.setter
    def faults(self, faults: Faults | None) -> None:
        if self._store is not None:
            self._store.faults = faults

    async def write(self, body: Body[T]) -> T:
        store = self._reached()
        try:
            return await store.write(body)
        except Unreachable as why:
            self.lose(why)
            raise

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        store = self._reached()
        try:
            return await store.read(body, few=few)
        except Unreachable as why:
            self.lose(why)
            raise

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        store = self._reached()
        try:
            return await store.ask(statement, **params)
        except Unreachable as why:
            self.lose(why)
            raise

    def _reached(self) -> DroppableStore:
        if self.outage is not None or self._store is None:
            is_wrong = self.outage is not None and self.outage.is_wrong
            raise Unreachable(
                f"the database of {self.name} {'is not the right one' if is_wrong else 'does not answer'}"
            )
        return self._store

    def lose(self, why: StoreError) -> None:
        if self.outage is not None:
            return
        self._note(why, self._clock.now())
        self._looking = asyncio.create_task(self._look_until_back())

    def _note(self, why: StoreError, since: float) -> None:
        is_wrong = isinstance(why, WrongStore)
        self.outage = Outage(since, str(why), is_wrong)
        said = "is not the one this cloud knows" if is_wrong else "does not answer"
        logger.warning("%s: its database %s, the rest of the cloud goes on: %s", self.name, said, why)

    async def _look_until_back(self) -> None:
        pause = FIRST_PAUSE
        while not await self._is_back():
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        assert self.outage is not None
        logger.warning("%s: its database answers again, after %.0f s", self.name, self._clock.now() - self.outage.since)
        self.outage = None

    async def _is_back(self) -> bool:
        try:
            if self._store is None:
                assert self._opener is not None
                self._store = await self._opener()
            await self._store.read(_look)
            if self._check is not None:
                await self._check(self._store)
        except StoreError as why:
            logger.debug("%s: %s", self.name, why)
            if isinstance(why, WrongStore) and self.outage is not None and self.outage.why != str(why):
                self._note(why, self.outage.since)
            return False
        return True

    async def close(self) -> None:
        self._stop_looking()
        if self._store is not None:
            await self._store.close()

    def drop(self) -> None:
        self._stop_looking()
        if self._store is not None:
            self._store.drop()

    def _stop_looking(self) -> None:
        if self._looking is not None and not self._looking.get_loop().is_closed():
            self._looking.cancel()


async def _look(tx: Tx) -> float:
    return await tx.now()
