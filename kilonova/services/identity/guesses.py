"""Limits of password guessing: failed log-ins by user and address, and turns at the costly comparison.

The table is in memory: each process counts its own, and a restart forgets. That is enough to make guessing slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from kilonova.domain.errors import Refused

WINDOW_SECONDS = 60.0
MOST_PAIRS = 10_000  # remembered; the one that failed longest ago is forgotten first


class Guess(NamedTuple):
    user: str  # an id, or a key of names that no record has
    address: str


class Guesses:
    """Wrong passwords of the last minute. Other addresses of the same user are not affected."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic, most: int = MOST_PAIRS) -> None:
        """`limit` 0: nothing is counted."""
        self._limit, self._clock, self._most = limit, clock, most
        self._failures: dict[Guess, deque[float]] = {}

    def refuse_blocked(self, guess: Guess | None) -> None:
        """Raise `Refused` with the seconds after which another try is allowed."""
        times = self._failures.get(guess) if guess is not None else None
        if times is None or len(times) < self._limit:
            return
        left = times[0] + WINDOW_SECONDS - self._clock()
        if left > 0:
            seconds = math.ceil(left)
            text = f"Too many failed log-ins of this user from this address: {self._limit} in a minute"
            headers = {"Retry-After": str(seconds)}
            raise Refused("too_many_logins", f"{text}; try again in {seconds} seconds.", headers=headers)

    def note(self, guess: Guess | None, *, is_right: bool) -> None:
        if guess is None or not self._limit:
            return
        times = self._failures.pop(guess, None)
        if is_right:
            return
        if len(self._failures) >= self._most:
            del self._failures[next(iter(self._failures))]
        self._failures[guess] = times or deque(maxlen=self._limit)  # at the end: the newest
        self._failures[guess].append(self._clock())

    def __len__(self) -> int:
        return len(self._failures)


class Turns:
    """A semaphore that goes round the addresses: a flood from one delays the others by one comparison each."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        await self._take(address)
        try:
            yield
        finally:
            self._give()

    async def _take(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._give()  # it was ours already
            raise

    def _give(self) -> None:
        while self._queues:
            address, queue = next(iter(self._queues.items()))
            del self._queues[address]
            turn = queue.popleft()
            if queue:
                self._queues[address] = queue  # behind the other addresses
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
