"""The measuring loop of a cloud that is asked through REST: callers take items in turn until no operation is live."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bench.http import Client, Connection

CALLERS = 16

T = TypeVar("T")


class Watch(Protocol):
    """How callers learn, at no cost to the cloud, that a server has reached a state."""

    async def until(self, server: str, state: str = "active") -> None:
        """Return when the server is in the state and has no task."""

    async def run(self) -> None:
        """Look again and again. Raise when a server is in ERROR."""

    async def until_idle(self) -> None:
        """Return when no operation is live."""


@dataclass
class Round:
    cpu_ms: float  # per item
    per_second: float
    wall: float  # seconds, until no operation was live


async def measured(
    client: Client,
    watch: Watch,
    cpu: Callable[[], float],
    items: Iterable[T],
    work: Callable[[Connection, T], Awaitable[None]],
) -> Round:
    """Measure what `work` costs per item, CALLERS at a time. `cpu` returns the seconds that the cloud has used."""
    todo = list(items)
    left = iter(todo)

    async def caller(connection: Connection) -> None:
        for item in left:
            await work(connection, item)

    async with client.connections(CALLERS) as connections:
        watching = asyncio.create_task(watch.run())
        before, began = cpu(), time.perf_counter()
        callers = asyncio.gather(*map(caller, connections))
        await asyncio.wait([callers, watching], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            await watching
        await callers
        watching.cancel()
        await asyncio.wait([watching])
        await watch.until_idle()
        wall, used = time.perf_counter() - began, cpu() - before
    return Round(used / len(todo) * 1000, len(todo) / wall, wall)
