"""A cell's database as all callers use it.

While it does not answer, every call fails immediately, and one task tries twice a second whether it is back: a cell
that is down costs the other cells nothing, and is used again within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kilonova.domain.errors import StoreError, Unreachable, WrongStore
from kilonova.store.halting import refuse_halted
from kilonova.store.instruments import ReadsClock, Stats
from kilonova.world import Body, Row, Store, Tx

logger = logging.getLogger(__name__)
T = TypeVar("T")
PAUSE = 0.5  # seconds between two tries to reach a database that is down
TRIES_AT_ONCE = 10  # one that hangs must not keep the next from finding the database back


class DroppableStore(Store, Protocol):
    halted: str

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
        self.halted = ""  # why nothing may be written; see store/marks.py
        self._clock = clock
        self._store = store
        self._opener = opener
        self._check = check
        self._looking: asyncio.Task[None] | None = None
        self._on_return: list[Callable[[str], None]] = []
        self._returns = 0  # so far

    @property
    def stats(self) -> Stats:
        return Stats() if self._store is None else self._store.stats

    async def write(self, body: Body[T]) -> T:
        store, returns = self._reached(), self._returns
        if self.halted:
            refuse_halted(self.halted)
        try:
            return await store.write(body)
        except Unreachable as why:
            self._lost(why, returns)
            raise

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        store, returns = self._reached(), self._returns
        try:
            return await store.read(body, few=few)
        except Unreachable as why:
            self._lost(why, returns)
            raise

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        store, returns = self._reached(), self._returns
        try:
            return await store.ask(statement, **params)
        except Unreachable as why:
            self._lost(why, returns)
            raise

    def _reached(self) -> DroppableStore:
        if self.outage is not None or self._store is None:
            is_wrong = self.outage is not None and self.outage.is_wrong
            raise Unreachable(
                f"the database of {self.name} {'is not the right one' if is_wrong else 'does not answer'}"
            )
        return self._store

    def _lost(self, why: StoreError, returns: int) -> None:
        """Count the database as lost, unless the call began before the database came back."""
        if returns == self._returns:
            self.lose(why)

    def lose(self, why: StoreError) -> None:
        if self.outage is not None:
            return
        self._note(why, self._clock.now())
        self._looking = asyncio.create_task(self._look_until_back())

    def _note(self, why: StoreError, since: float) -> None:
        is_wrong = isinstance(why, WrongStore)
        self.outage = Outage(since, str(why), is_wrong)
        said = "is not the one this cloud knows" if is_wrong else "does not answer"
        logger.warning("%s: its database %s, the rest of the cloud continues: %s", self.name, said, why)

    def on_return(self, call: Callable[[str], None]) -> None:
        """Call with its name whenever it answers again."""
        self._on_return.append(call)

    async def _look_until_back(self) -> None:
        """Try to connect every half second, whether the attempt before has ended or hangs."""
        back, tries = asyncio.Event(), set[asyncio.Task[None]]()
        try:
            while not back.is_set():
                at_once = TRIES_AT_ONCE if self._store is not None else 1  # opening may change the schema
                if len(tries) < at_once:
                    tries.add(one := asyncio.create_task(self._try(back)))
                    one.add_done_callback(tries.discard)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE):
                        await back.wait()
        finally:
            for one in list(tries):
                one.cancel()
        self._returned()

    def _returned(self) -> None:
        assert self.outage is not None
        logger.warning("%s: its database answers again, after %.0f s", self.name, self._clock.now() - self.outage.since)
        self.outage = None
        self._returns += 1
        for call in self._on_return:
            call(self.name)

    async def _try(self, back: asyncio.Event) -> None:
        try:
            if self._store is None:
                assert self._opener is not None
                self._store = await self._opener()
            await self._store.read(_look)
            if self._check is not None:
                await self._check(self._store)
            back.set()
        except StoreError as why:
            logger.debug("%s: %s", self.name, why)
            if isinstance(why, WrongStore) and self.outage is not None and self.outage.why != str(why):
                self._note(why, self.outage.since)

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
