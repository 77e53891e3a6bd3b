"""Questions that a host's agent answers at once, beside its steps: guests, their consoles, and the images it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from kilonova.compute.consoles import Consoles
from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import CacheOrder, ConsoleOpen, ConsoleQuestion, Holdings, HoldingsQuestion
from kilonova.world import ConsoleDoor, Driver

Question = ConsoleQuestion | ConsoleOpen | CacheOrder | HoldingsQuestion


class Questions:
    def __init__(
        self, driver: Driver, door: ConsoleDoor | None, copies: Callable[[], Awaitable[list[CopyReport]]]
    ) -> None:
        self._driver, self._copies = driver, copies
        self.consoles = Consoles(driver, door)

    async def answer(self, body: bytes) -> bytes:
        question: Question = msgspec.json.decode(body, type=Question)
        if isinstance(question, CacheOrder):
            await self._driver.cache_images(question.wanted)
            return b""
        if isinstance(question, HoldingsQuestion):
            return msgspec.json.encode(Holdings(await self._copies()))
        if isinstance(question, ConsoleOpen):
            return msgspec.json.encode(await self.consoles.answer(question))
        return msgspec.json.encode(await self._driver.console(question.server, question.copy))
