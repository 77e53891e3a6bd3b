"""Periodic tasks on every journal, each journal separately: one that hangs does not delay the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from kilonova.domain.errors import KilonovaError, Unreachable
from kilonova.world import Store

logger = logging.getLogger(__name__)
PATIENCE = 0.5  # seconds that a round waits for its slowest journal


class PeriodicTask:
    def __init__(self, work: Callable[[Store], Awaitable[None]]) -> None:
        self._work = work
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def go(self, journals: Iterable[Store]) -> None:
        """Begin a round; a journal whose last round has not ended yet is skipped."""
        begun = []
        for journal in journals:
            if journal.name not in self._under_way or self._under_way[journal.name].done():
                task = self._under_way[journal.name] = asyncio.create_task(self._one(journal))
                begun.append(task)
        if begun:
            await asyncio.wait(begun, timeout=PATIENCE)

    async def _one(self, journal: Store) -> None:
        name = getattr(self._work, "__name__", "round")
        try:
            await self._work(journal)
        except Unreachable as error:
            logger.debug("%s of %s: %s", name, journal.name, error)  # another line has reported that it is unreachable
        except KilonovaError as error:
            logger.warning("%s of %s: %s", name, journal.name, error)
        except Exception:
            logger.exception("%s of %s failed", name, journal.name)

    async def stop(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
