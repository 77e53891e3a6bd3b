"""A reserve of each disk of an api: other writes stop before it is used up. Deletes write too, so they still work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kilonova.domain.errors import Refused
from kilonova.free_space import free_bytes
from kilonova.threads import FILES

logger = logging.getLogger(__name__)
MEBIBYTE = 1024**2
LOOK_SECONDS = 1.0
DATABASES, IMAGES, VOLUMES = "databases", "images", "volumes"


class DiskReserve:
    """The folders that have less than `amount` bytes left. `watch` checks them periodically, so that a request needs
    no check and never waits for a disk that hangs."""

    def __init__(
        self, amount: int, folders: Mapping[str, Path] | None = None, free: Callable[[Path], int] = free_bytes
    ) -> None:
        self.amount, self._free = amount, free
        self._folders = dict(folders or {})
        self._shortages: dict[str, str] = {}

    def look(self) -> None:
        for what in self._folders:
            reason = self._shortage(what)
            if bool(reason) != bool(self._shortages.get(what)):
                logger.warning("disk of %s: %s", what, reason or "it has its reserve again")
            self._shortages[what] = reason

    async def watch(self) -> None:
        while True:
            await FILES.run(self.look)
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def shortage(self) -> str:
        """The reason, as of the last check; "" while all disks have their reserve."""
        return next(filter(None, self._shortages.values()), "")

    def refuse(self, *folders: str) -> None:
        """Raise `Refused` if one of these was short at the last look."""
        for what in folders:
            if self._shortages.get(what):
                raise Refused("storage_reserve", self._shortages[what])

    def check(self, what: str) -> None:
        """Refuse as `refuse` does, but check now; for threads that write."""
        if reason := self._shortage(what):
            raise Refused("storage_reserve", reason)

    def _shortage(self, what: str) -> str:
        folder = self._folders.get(what)
        if folder is None or not self.amount:
            return ""
        try:
            free = self._free(folder)
        except OSError as error:
            return f"the disk of the {what} cannot be looked at: {error.strerror}"
        if free >= self.amount:
            return ""
        return (
            f"the disk of the {what} has {free // MEBIBYTE} MB left and {self.amount // MEBIBYTE} MB are kept for "
            "deletes; delete something, or make the disk larger"
        )
