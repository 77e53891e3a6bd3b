"""A simulated cloud on a real PostgreSQL: virtual time stands still while a query is under way, and the database's
clock is the simulation's, since leases and silence are judged by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kilonova.sim.loop import SimClock, SimLoop, current_process
from kilonova.store.instruments import Faults
from kilonova.store.postgres import PostgresStore
from kilonova.world import Body, Row, Tx

T = TypeVar("T")


class VirtualTx:
    """A transaction whose database lives in virtual time."""

    def __init__(self, tx: Tx, clock: SimClock) -> None:
        self.one, self.all, self.run = tx.one, tx.all, tx.run
        self.many, self.each = tx.many, tx.each
        self.mark = tx.mark
        self._clock = clock

    async def now(self) -> float:
        return self._clock.now()


class VirtualStore:
    def __init__(self, store: PostgresStore, clock: SimClock) -> None:
        self.name = store.name
        self._store = store
        self._clock = clock

    async def write(self, body: Body[T]) -> T:
        return await self._store.write(lambda tx: body(VirtualTx(tx, self._clock)))

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        return await self._store.read(lambda tx: body(VirtualTx(tx, self._clock)))

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        return await self._store.ask(statement, **params)

    def watch(self, watcher: Faults) -> None:
        self._store.faults = watcher

    async def close(self) -> None:
        await self._store.close()

    def drop(self) -> None:
        self._store.drop()


def on_postgres(urls: Mapping[str, str]) -> Callable[[SimLoop], dict[str, Any]]:
    """For SimCloud(open_databases=…): each simulated process gets connections of its own."""

    def open_databases(loop: SimLoop) -> dict[str, Any]:
        clock = SimClock(loop)

        def count(step: int) -> None:
            if current_process() is not None:  # what a killed process had under way, the loop has discounted itself
                loop.io(step)

        return {
            name: VirtualStore(PostgresStore(name, url, connections=4, timeout=None, on_io=count), clock)
            for name, url in urls.items()
        }

    return open_databases
