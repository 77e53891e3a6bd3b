"""Slots for work on files: a few at once, shared fairly between projects."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator


class FairSlots:
    """Slots for at most `most` at once, and always one that no single project can take. The waiting project with the
    fewest running comes first, then the one that has waited longest."""

    def __init__(self, most: int) -> None:
        self._most, self._most_of_one = most, max(1, most - 1)
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @contextlib.asynccontextmanager
    async def taken(self, project: str) -> AsyncIterator[None]:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((project, granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._running[project] -= 1
            else:
                self._waiting.remove((project, granted))
            self._grant()

    def _grant(self) -> None:
        while self._running.total() < self._most:
            able = [(self._running[one[0]], index) for index, one in enumerate(self._waiting) if self._is_able(*one)]
            if not able:
                return
            project, granted = self._waiting.pop(min(able)[1])
            self._running[project] += 1
            granted.set_result(None)

    def _is_able(self, project: str, granted: asyncio.Future[None]) -> bool:
        return self._running[project] < self._most_of_one and not granted.done()
