"""A store with the faults that a simulation or a test gives it: its database is unreachable, a COMMIT fails, or it
succeeds and its answer is lost. It wraps a store of any engine; the engines know nothing of the faults."""

from __future__ import annotations

from typing import Any, TypeVar

from kilonova.sim.lab.outages import Outages
from kilonova.sim.loop.faults import CommitFaults
from kilonova.store.cell_store import DroppableStore
from kilonova.store.instruments import Stats
from kilonova.world import Body, Row, Tx

T = TypeVar("T")


class FaultyStore:
    """See world.Store."""

    def __init__(
        self, store: DroppableStore, outages: Outages | None = None, faults: CommitFaults | None = None
    ) -> None:
        self.name = store.name
        self.faults = faults
        self._store = store
        self._outages = outages or Outages()

    @property
    def halted(self) -> str:
        return self._store.halted

    @halted.setter
    def halted(self, why: str) -> None:
        self._store.halted = why

    @property
    def stats(self) -> Stats:
        return self._store.stats

    async def write(self, body: Body[T]) -> T:
        """Write. A COMMIT that shall fail is never sent: an exception in the transaction rolls it back."""
        await self._outages.check(self.name)
        faults = self.faults
        if faults is None:
            return await self._store.write(body)

        async def until_commit(tx: Tx) -> T:
            written = await body(tx)
            faults.before_commit(self.name)
            return written

        written = await self._store.write(until_commit)
        faults.after_commit(self.name)
        return written

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        await self._outages.check(self.name)
        return await self._store.read(body, few=few)

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        await self._outages.check(self.name)
        return await self._store.ask(statement, **params)

    async def close(self) -> None:
        await self._store.close()

    def drop(self) -> None:
        self._store.drop()
