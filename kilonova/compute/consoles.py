"""Consoles of one host's guests, opened on request of an API over the bus. Bytes do not go over the bus: the host
connects to that API, with the token of the request. Nothing listens on the host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter

from kilonova.compute.serial_lines import SerialLines
from kilonova.domain.console import KINDS, PER_HOST, PER_SERVER, SERIAL, ByteStream
from kilonova.domain.errors import Failed, KilonovaError
from kilonova.domain.messages import ConsoleOpen, ConsoleOpened
from kilonova.world import ConsoleDoor, Driver

logger = logging.getLogger(__name__)
OPEN_SECONDS = 5.0
UNAVAILABLE = "console_unavailable"
PROBLEMS = ("no_guest", "guest_off", UNAVAILABLE, "too_many_consoles")


class Consoles:
    def __init__(self, driver: Driver, door: ConsoleDoor | None) -> None:
        self._driver, self._door = driver, door
        self._lines = SerialLines(lambda server, copy: driver.open_console(server, copy, SERIAL))
        self._open: Counter[str] = Counter()  # connections by server
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, question: ConsoleOpen) -> ConsoleOpened:
        """Raise `Failed` where the driver cannot say."""
        try:
            await self._check(question)
            if question.token:
                await self._begin(question)
        except Failed as why:
            if why.code in PROBLEMS:
                return ConsoleOpened(why.code)
            raise
        return ConsoleOpened()

    async def stop(self) -> None:
        """Stop the consoles. Guests go on running; users connect again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _check(self, question: ConsoleOpen) -> None:
        kinds = await self._driver.consoles(question.server, question.copy)
        if self._door is None or question.kind not in KINDS or question.kind not in kinds:
            raise Failed(UNAVAILABLE, f"server {question.server}: it has no console of the type {question.kind!r}")
        if self._open[question.server] >= PER_SERVER or self._open.total() >= PER_HOST:
            raise Failed("too_many_consoles", f"server {question.server}: too many connections to its consoles")

    async def _begin(self, question: ConsoleOpen) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                stream = await self._connect(question)
        except (OSError, TimeoutError) as why:
            raise Failed(UNAVAILABLE, f"server {question.server}: its console cannot be opened: {why}") from why
        self._open[question.server] += 1
        task = asyncio.create_task(self._carry(question, stream))
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._end(question.server, task))

    async def _connect(self, question: ConsoleOpen) -> ByteStream:
        if question.kind == SERIAL:
            return await self._lines.join(question.server, question.copy)
        return await self._driver.open_console(question.server, question.copy, question.kind)

    async def _carry(self, question: ConsoleOpen, stream: ByteStream) -> None:
        assert self._door is not None
        try:
            await self._door.carry(question.url, question.token, stream)
        except KilonovaError as why:
            logger.warning("console not connected: server=%s type=%s: %s", question.server, question.kind, why)
        finally:
            with contextlib.suppress(OSError):
                await stream.close()

    def _end(self, server: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._open[server] -= 1
        if not self._open[server]:
            del self._open[server]
