"""Power changes of guests, reported with the next heartbeat. All changes are reported: a driver does not know their
cause.

Each change is reported until a conductor has noted it. After a step it is read again: the step may have changed it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection

from kilonova.domain.errors import KilonovaError
from kilonova.world import Clock, Driver

logger = logging.getLogger(__name__)
MOST_AT_ONCE = 64  # in one heartbeat
AGAIN_SECONDS = 1.0  # after the driver could not answer
PowerChanges = list[tuple[str, int, bool]]


class PowerNews:
    def __init__(self, driver: Driver, clock: Clock, wake: Callable[[], None]) -> None:
        self._driver, self._clock, self._wake = driver, clock, wake
        self._waiting: dict[tuple[str, int], bool] = {}

    async def watch(self) -> None:
        """Note every change, until cancelled."""
        while True:
            try:
                changed = await self._driver.power_change()
                self._waiting[changed.server, changed.copy] = await self._driver.is_on(changed.server, changed.copy)
                self._wake()
            except KilonovaError as error:  # the driver compares again when it can
                logger.debug("power of a guest cannot be read: %s", error)
                await self._clock.sleep(AGAIN_SECONDS)

    def take(self, busy: Collection[str]) -> PowerChanges:
        """Return the changes to report now, without servers that have a step under way: the step reports its result."""
        changes = [(*key, on) for key, on in self._waiting.items() if key[0] not in busy]
        return changes[:MOST_AT_ONCE]

    def note(self, changes: PowerChanges, noted: Collection[tuple[str, int]]) -> None:
        """Forget the changes that a conductor has noted, unless they have changed again. Move the others to the end of
        the queue, so that a few dozen servers that are busy for long do not block the rest."""
        for server, copy, on in changes:
            now = self._waiting.pop((server, copy), None)
            if now is not None and ((server, copy) not in noted or now != on):
                self._waiting[server, copy] = now

    async def read_again(self, server: str) -> None:
        """Read the power of this server's waiting changes again, after its step has ended."""
        for key in [key for key in self._waiting if key[0] == server]:
            with contextlib.suppress(KilonovaError):
                self._waiting[key] = await self._driver.is_on(*key)

    def clear(self) -> None:
        """Forget all changes: the host registers and reports every guest."""
        self._waiting.clear()
