"""A queue served by a few threads, each with its own connection. A thread takes what waits, does it as one batch, and
answers the whole batch with a single wake-up of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kilonova.domain.errors import StoreError
from kilonova.store.sqlite_transactions import Outcome
from kilonova.world import Body

Ask = tuple[Body[Any], asyncio.Future[Any]]
Run = Callable[[Sequence[Body[Any]]], list[Outcome]]


class WorkQueue:
    """A queue of calls and the few threads that do them."""

    def __init__(self, name: str, runs: Sequence[Run], *, batch: int) -> None:
        self._name = name
        self._batch = batch
        self._dropped = False
        self._asks: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(run,), name=f"{name}-{number}", daemon=True)
            for number, run in enumerate(runs)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, body: Body[Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._asks.put((body, future))
        return future

    def stop(self) -> None:
        """Return when all earlier calls were done and the threads have ended."""
        for _ in self._threads:
            self._asks.put(None)
        for thread in self._threads:
            thread.join()

    def drop(self) -> None:
        """Drop the waiting calls without an answer: the process that they belong to is dead.

        Wait for the batch that is being written, since its connection can be closed only after it.
        """
        self._dropped = True
        self.stop()

    def _serve(self, run: Run) -> None:
        while (first := self._asks.get()) is not None and not self._dropped:
            asks, stopping = self._take_more(first)
            outcomes = _outcomes(run, asks)
            if not self._dropped:
                _answer(asks, outcomes)
            del asks, outcomes, first  # the last batch would otherwise stay alive while waiting
            if stopping:
                return

    def _take_more(self, first: Ask) -> tuple[list[Ask], bool]:
        asks = [first]
        with contextlib.suppress(queue.Empty):
            # Only the calls that wait now: later ones must not delay the first.
            for _ in range(min(self._asks.qsize(), self._batch - 1)):
                ask = self._asks.get_nowait()
                if ask is None:
                    return asks, True
                asks.append(ask)
        return asks, False


def _outcomes(run: Run, asks: Sequence[Ask]) -> list[Outcome]:
    try:
        return run([body for body, _ in asks])
    except BaseException as error:  # a bug of ours: its callers get the error, the thread lives on
        return [(None, StoreError(f"the store failed: {error!r}")) for _ in asks]


def _answer(asks: Sequence[Ask], outcomes: Sequence[Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for (_, future), outcome in zip(asks, outcomes, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: no caller waits there any more
            loop.call_soon_threadsafe(settle, answers)


def settle(answers: Sequence[tuple[asyncio.Future[Any], Outcome]]) -> None:
    for future, (value, error) in answers:
        if future.done():
            continue  # its caller was cancelled
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
