"""Threads for calls that may hang, each with its own connection.

A ThreadPoolExecutor would wait for its threads when the process ends, and a hung libvirtd would keep it from ending.
A connection that several threads share would hold all but one of them for ever when keepalive closes it: libvirt wakes
up only the call that was reading.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

C = TypeVar("C")
T = TypeVar("T")


class Task(Generic[T]):
    """A pending call: begun by a thread, or abandoned by its caller, never both."""

    def __init__(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        self._work, self._arguments = work, arguments
        self._lock = threading.Lock()
        self._state = ""
        self.future: Future[T] = Future()

    def abandon(self) -> bool:
        """Abandon the call. Return True if it will never run; False if it has begun."""
        return self._take("abandoned")

    def _take(self, state: str) -> bool:
        with self._lock:
            self._state = self._state or state
            return self._state == state

    def run(self, prepare: Callable[[], Any]) -> None:
        """Run the work, with the result of `prepare` as its first argument."""
        try:
            first = prepare()
            if self._take("begun"):
                self.future.set_result(self._work(first, *self._arguments))
        except BaseException as error:
            if self._take("begun"):
                self.future.set_exception(error)


class Workers(Generic[C]):
    """Daemon threads for calls: up to `most`, started on demand."""

    def __init__(
        self, name: str, most: int, connect: Callable[[], C], is_good: Callable[[C], bool], end: Callable[[C], None]
    ) -> None:
        self._name, self._most, self._connect, self._is_good, self._end = name, most, connect, is_good, end
        self._queue: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()  # None: a thread ends
        self._lock = threading.Lock()
        self._threads = self._busy = 0  # busy: tasks that were submitted and have not ended
        self._connecting: dict[int, float] = {}  # by thread: since when

    def submit(self, work: Callable[..., T], *arguments: Any) -> Task[T]:
        task = Task(work, arguments)
        with self._lock:
            self._busy += 1
            if self._threads < min(self._busy, self._most):
                self._threads += 1
                threading.Thread(target=self._live, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._queue.put(task)
        return task

    def close(self) -> None:
        """Let the threads end when their calls have, and close their connections. Later calls start new ones."""
        with self._lock:
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._queue.put(None)

    def connecting_seconds(self) -> float:
        """Return how long the thread that waits longest for a connection has waited."""
        with self._lock:
            return time.monotonic() - min(self._connecting.values(), default=time.monotonic())

    def _live(self) -> None:
        connection: C | None = None

        def prepare() -> C:
            nonlocal connection
            if connection is None or not self._is_good(connection):
                connection = None
                connection = self._timed_connect()
            return connection

        while (task := self._queue.get()) is not None:
            task.run(prepare)
            with self._lock:
                self._busy -= 1
            del task  # else an idle thread would hold the last result
        if connection is not None:
            self._end(connection)

    def _timed_connect(self) -> C:
        own = threading.get_ident()
        with self._lock:
            self._connecting[own] = time.monotonic()
        try:
            return self._connect()
        finally:
            with self._lock:
                del self._connecting[own]
