"""The writes of one SQLite file: waiting callers share a COMMIT.

Statements run on the event loop, only the COMMIT in a thread. A statement takes some microseconds and releases Python's
lock twice; in another thread each of them would be a switch between two processors (decision 008). The COMMIT waits for
the disk; calls that arrive meanwhile form the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kilonova.domain.errors import StoreError
from kilonova.store.sqlite_transactions import Batch, Outcome, WriteSide
from kilonova.store.work_queue import Ask, settle
from kilonova.world import Body


class GroupCommit:
    """Bound to one event loop at a time; bodies run on the caller's loop."""

    def __init__(self, side: WriteSide, *, most: int) -> None:
        self._side = side
        self._most = most
        self._waiting: deque[Ask] = deque()
        self._is_busy = False  # a batch is with the thread, or about to be built
        self._dropped = False
        self._idle: asyncio.Event | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{side.name}-write")

    def ask(self, body: Body[Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append((body, future))
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._next)  # not now: calls of the same turn of the loop join this batch
        return future

    async def stop(self) -> None:
        """Return when all earlier calls were done and the thread has ended."""
        self._idle = asyncio.Event()
        if self._is_busy:
            await self._idle.wait()
        await asyncio.to_thread(self._thread.shutdown)

    def drop(self) -> None:
        """Drop the waiting calls without an answer: the process that they belong to is dead.

        Waits for the COMMIT under way, since its connection can be closed only after it.
        """
        self._dropped = True
        self._thread.shutdown()

    def _next(self) -> None:
        if self._dropped:
            return
        if not self._waiting:
            self._is_busy = False
            if self._idle is not None:
                self._idle.set()
            return
        asks = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        batch = Batch([body for body, _ in asks])
        try:
            left = self._begin(batch)
        except BaseException as error:
            self._answer(asks, _failed(asks, error))
            return
        if left is None:
            self._answer(asks, batch.outcomes)
        else:
            self._thread.submit(self._in_thread, asks, batch, left)

    def _begin(self, batch: Batch) -> Callable[[Batch], None] | None:
        """Begin a batch; return the rest of the work for the thread, if any."""
        if not self._side.work(batch, wait=False):
            return self._wait_and_run  # another process writes
        if batch.has_changed:
            return self._side.finish
        self._side.finish(batch)  # waits for no disk
        return None

    def _wait_and_run(self, batch: Batch) -> None:
        self._side.work(batch, wait=True)
        self._side.finish(batch)

    def _in_thread(self, asks: list[Ask], batch: Batch, left: Callable[[Batch], None]) -> None:
        try:
            left(batch)
            outcomes = batch.outcomes
        except BaseException as error:
            outcomes = _failed(asks, error)
        try:
            asks[0][1].get_loop().call_soon_threadsafe(self._answer, asks, outcomes)
        except RuntimeError:  # that loop is closed: no caller waits there any more
            self._is_busy = False

    def _answer(self, asks: list[Ask], outcomes: list[Outcome]) -> None:
        if self._dropped:
            return
        settle([(future, outcome) for (_, future), outcome in zip(asks, outcomes, strict=True)])
        # After the answered callers, many of which write again at once.
        asyncio.get_running_loop().call_soon(self._next)


def _failed(asks: list[Ask], error: BaseException) -> list[Outcome]:
    """Handle a bug of ours: its callers get the error, and the next batch runs."""
    return [(None, StoreError(f"the store failed: {error!r}")) for _ in asks]
