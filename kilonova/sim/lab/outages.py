"""Databases that go away and come back: their servers refuse at once, or hang until the caller gives up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kilonova.domain.errors import Unreachable

HANGING_SECONDS = 5.0  # as long as a statement may take in a cell ([database] cell_timeout)
REFUSES, HANGS = "refuses", "hangs"


@dataclass
class Outages:
    """The outages of one cloud, by database."""

    now: dict[str, str] = field(default_factory=dict)  # database: REFUSES or HANGS

    def begin(self, database: str, how: str = REFUSES) -> None:
        self.now[database] = how

    def end(self, database: str) -> None:
        self.now.pop(database, None)

    def stop(self) -> None:
        self.now.clear()

    async def check(self, database: str) -> None:
        how = self.now.get(database)
        if how == HANGS:
            await asyncio.sleep(HANGING_SECONDS)
        if how is not None:
            raise Unreachable(f"{database} {how}")
