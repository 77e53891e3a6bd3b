"""Admission control: a limit on the weight admitted at a time, in order of arrival, with a timeout for waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kilonova.domain.errors import Crowded


class Admission:
    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def passed(self, weight: int, patience: float, who: str) -> AsyncIterator[None]:
        """Run the body while `weight` counts against the limit; a weight above the limit is admitted alone."""
        weight = min(weight, self._limit)
        await self._enter(weight, patience, who)
        try:
            yield
        finally:
            self._free += weight
            self._let_in()

    async def _enter(self, weight: int, patience: float, who: str) -> None:
        if not self._waiting and weight <= self._free:
            self._free -= weight
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, turn))
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            self._leave(weight, turn)
            if isinstance(error, TimeoutError):
                raise Crowded(f"too many requests at once; {who} retries") from None
            raise

    def _leave(self, weight: int, turn: asyncio.Future[None]) -> None:
        """Remove a waiter that gave up; it may have been admitted at that very moment."""
        if not turn.cancelled():
            self._free += weight
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            weight, turn = self._waiting[0]
            if not turn.done():  # else it has given up
                if weight > self._free:
                    return
                self._free -= weight
                turn.set_result(None)
            self._waiting.popleft()
