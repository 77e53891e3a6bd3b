"""One SQLite file as a store: with threads and group commit in production, without threads in the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kilonova.domain.errors import StoreError
from kilonova.store.group_commit import GroupCommit
from kilonova.store.halting import refuse_halted
from kilonova.store.instruments import ReadsClock, Stats
from kilonova.store.sqlite_connection import connect
from kilonova.store.sqlite_transactions import Outcome, ReadSide, WriteSide
from kilonova.store.statements import Sql
from kilonova.store.work_queue import WorkQueue
from kilonova.world import Body, Row, Tx

T = TypeVar("T")
READERS = 2
WRITE_BATCH = 128  # bounds how long the event loop is blocked, and the loss of a failing COMMIT
READ_BATCH = 4  # halves the cost of a read under load; more would make short reads wait behind long ones

Checkpoint = Callable[[], Awaitable[None]]


async def _yield_once() -> None:
    await asyncio.sleep(0)


class SqliteStore:
    """See world.Store. Bodies run synchronously, so in one process two stores on one file never meet a lock."""

    def __init__(
        self,
        name: str,
        path: Path | str,
        *,
        threaded: bool,
        clock: ReadsClock,
        checkpoint: Checkpoint | None = None,
        synchronous: str = "FULL",
    ) -> None:
        self.name = name
        self.stats = Stats()
        self.halted = ""  # why nothing may be written; see store/marks.py
        self._checkpoint = checkpoint or _yield_once
        self._closed = False
        connection = connect(name, path, synchronous=synchronous)
        self._connections = [connection]
        self._writer = WriteSide(name, connection, clock, self.stats)
        self._reader = ReadSide(name, connection, clock, self.stats)
        self._own = self._reader  # of the event loop's thread
        self._writes: GroupCommit | None = None
        self._reads: WorkQueue | None = None
        if threaded:
            self._start_lanes(path, clock)

    def _start_lanes(self, path: Path | str, clock: ReadsClock) -> None:
        own = [connect(self.name, path, readonly=True) for _ in range(READERS + 1)]
        self._connections += own
        self._own, *readers = [ReadSide(self.name, connection, clock, self.stats) for connection in own]
        self._writes = GroupCommit(self._writer, most=WRITE_BATCH)
        self._reads = WorkQueue(f"{self.name}-read", [reader.run for reader in readers], batch=READ_BATCH)

    async def write(self, body: Body[T]) -> T:
        self._check_open()
        if self.halted:
            refuse_halted(self.halted)
        if self._writes is not None:
            written: T = await self._writes.ask(body)
            return written
        await self._checkpoint()
        self._check_open()
        outcome = self._writer.run([body])[0]
        await self._checkpoint()
        done: T = _unpack(outcome)
        return done

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        """Run a body that only reads; with `few` in this thread: a reader's thread costs 50 µs of CPU, a row 15."""
        self._check_open()
        if self._reads is not None and few:
            here: T = _unpack(self._own.run([body])[0])
            return here
        if self._reads is not None:
            result: T = await self._reads.ask(body)
            return result
        await self._checkpoint()
        self._check_open()
        seen: T = _unpack(self._reader.run([body])[0])
        return seen

    async def ask(self, statement: Sql, /, **params: Any) -> Row | None:
        if self._reads is not None:
            self._check_open()
            return self._own.ask(statement, params)

        async def body(tx: Tx) -> Row | None:
            return await tx.one(statement, **params)

        return await self.read(body, few=True)

    async def close(self) -> None:
        """Close after the earlier calls."""
        if self._closed:
            return
        self._closed = True
        if self._writes is not None:
            await self._writes.stop()
        if self._reads is not None:
            await asyncio.to_thread(self._reads.stop)
        # The writer last: it folds the write-ahead log into the file, which a reader may not.
        for connection in reversed(self._connections):
            connection.close()

    def drop(self) -> None:
        """Drop the store of a process that died: nothing more is run, an open transaction is rolled back."""
        self._closed = True
        for queue in (self._writes, self._reads):
            if queue is not None:
                queue.drop()
        for connection in self._connections:
            connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"database {self.name}: it is closed")


def _unpack(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value
