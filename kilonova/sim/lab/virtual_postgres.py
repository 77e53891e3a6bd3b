"""A simulated cloud on a real PostgreSQL: virtual time does not pass while a query is under way, and the database's
clock is the simulation's, since leases and silence are judged by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kilonova.sim.loop.event_loop import SimClock, SimLoop
from kilonova.sim.loop.process import current_process
from kilonova.store.instruments import ReadsClock
from kilonova.store.postgres import PostgresStore
from kilonova.store.statements import POSTGRES_TIME, Sql
from kilonova.world import Body, Row, Tx

T = TypeVar("T")


def at(statement: Sql, now: float) -> Sql:
    """The statement with this time in place of the server's."""
    text, names = statement.postgres
    if POSTGRES_TIME not in text:
        return statement
    timed = Sql(statement.element)
    timed.postgres = (text.replace(POSTGRES_TIME, f"{now!r}::float8"), names)
    timed.postgres_constants = statement.postgres_constants
    return timed


class VirtualTx:
    """A transaction whose database lives in virtual time."""

    def __init__(self, tx: Tx, clock: ReadsClock) -> None:
        self._tx = tx
        self.mark = tx.mark
        self._clock = clock

    async def one(self, statement: Any, /, **params: Any) -> Row | None:
        return await self._tx.one(self._timed(statement), **params)

    async def all(self, statement: Any, /, **params: Any) -> Sequence[Row]:
        return await self._tx.all(self._timed(statement), **params)

    async def run(self, statement: Any, /, **params: Any) -> int:
        return await self._tx.run(self._timed(statement), **params)

    async def many(self, statement: Any, rows: Sequence[Mapping[str, object]], /) -> None:
        await self._tx.many(self._timed(statement), rows)

    async def each(self, statement: Any, rows: Sequence[Mapping[str, object]], /) -> Sequence[Row]:
        return await self._tx.each(self._timed(statement), rows)

    def _timed(self, statement: Sql) -> Sql:
        return at(statement, self._clock.now())

    async def now(self) -> float:
        return self._clock.now()


class VirtualStore:
    def __init__(self, store: PostgresStore, clock: ReadsClock) -> None:
        self.name = store.name
        self._store = store
        self._clock = clock

    async def write(self, body: Body[T]) -> T:
        return await self._store.write(lambda tx: body(VirtualTx(tx, self._clock)))

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        return await self._store.read(lambda tx: body(VirtualTx(tx, self._clock)))

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        return await self._store.ask(at(statement, self._clock.now()), **params)

    async def close(self) -> None:
        await self._store.close()

    def drop(self) -> None:
        self._store.drop()


def on_postgres(urls: Mapping[str, str]) -> Callable[[SimLoop], dict[str, VirtualStore]]:
    """Return the function for SimCloud(open_databases=…): each simulated process gets its own connections."""

    def open_databases(loop: SimLoop) -> dict[str, VirtualStore]:
        clock = SimClock(loop)

        def count(step: int) -> None:
            if current_process() is not None:  # what a killed process had under way, the loop has discounted itself
                loop.io(step)

        return {
            name: VirtualStore(PostgresStore(name, url, connections=4, timeout=None, on_io=count), clock)
            for name, url in urls.items()
        }

    return open_databases
