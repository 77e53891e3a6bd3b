"""Threads for blocking calls: a few for each kind of work, so that one kind never waits for another.

asyncio's own pool is shared by everything: with eight copies of disks in it, no user could log in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
LOW = 10  # niceness of work that no caller waits for


class Threads:
    """Threads for one kind of work: up to `most`, started on demand."""

    def __init__(self, name: str, most: int, *, niceness: int = 0) -> None:
        def begin() -> None:
            if niceness:  # Linux keeps it per thread; below what the process itself was given
                own = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + niceness, 19))

        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name, initializer=begin)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def run_until_stopped(self, stop: threading.Event, work: Callable[..., T], *arguments: Any) -> T:
        """Run the work as `run` does. Cancelled, however often, set `stop` and return only when the thread has ended:
        the same work may be begun again at once."""
        future = asyncio.ensure_future(self.run(work, *arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # that the work failed when it was stopped need not be logged
            raise

    async def run_to_its_end(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run short work as `run` does. Cancelled, return only when the thread has ended."""
        return await self.run_until_stopped(threading.Event(), work, *arguments)


PASSWORDS = Threads("password", 2)
KEYS = Threads("key", 1)
FILES = Threads("file", 8)  # short: open, read or write a piece, rename, remove
COPIES = Threads("copy", 8, niceness=LOW)  # long: whole disks
