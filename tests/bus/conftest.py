"""One way to get ends of a bus, whichever bus it is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.bus.nats import NatsBus
from kilonova.world import Bus

PREFIXES = (f"test{number}" for number in itertools.count())


class Site:
    """Makes ends that hear each other, and closes them after the test's coroutine."""

    def __init__(self, make: Callable[[str], Bus]) -> None:
        self._make = make
        self._ends: list[Bus] = []

    async def end(self, name: str) -> Any:
        end = self._make(name)
        self._ends.append(end)
        await end.start()
        return end

    def run(self, body: Callable[[Site], Awaitable[None]], seconds: float = 20.0) -> None:
        async def bounded() -> None:
            try:
                async with asyncio.timeout(seconds):
                    await body(self)
            finally:
                for end in self._ends:
                    await end.close()

        asyncio.run(bounded())


def memory_site(weather: Any = None) -> Site:
    hub = MemoryHub(weather)
    return Site(lambda name: MemoryBus(hub, name, prefix="test"))


def nats_site(url: str) -> Site:
    prefix = next(PREFIXES)
    return Site(lambda name: NatsBus(url, name, prefix=prefix))


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
def site(request: pytest.FixtureRequest) -> Site:
    return memory_site() if request.param == "memory" else nats_site(request.getfixturevalue("nats").url)
