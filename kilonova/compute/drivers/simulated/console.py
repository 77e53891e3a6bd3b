"""The serial console of a simulated guest: it shows the console log, and answers every line with its last line."""

from __future__ import annotations

import asyncio
import contextlib

from kilonova.compute.drivers.simulated.hardware import Guest
from kilonova.domain.console import PIECE

LOOK_SECONDS = 0.1  # until it is noticed that the guest has ended


class SimulatedConsole:
    """`ByteStream` of a guest that runs."""

    def __init__(self, guest: Guest) -> None:
        self._guest, self._boots = guest, guest.boots
        self._output = bytearray(_as_typed(guest.console))
        self._news = asyncio.Event()
        self._is_closed = False

    async def read(self) -> bytes:
        while not self._output and self._lives():
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
        data = bytes(self._output[:PIECE])
        del self._output[:PIECE]
        return data

    async def write(self, data: bytes) -> None:
        if not self._lives():
            raise ConnectionResetError("the guest has ended")
        if len(self._output) <= PIECE:  # a guest that cannot write drops its input
            self._output += data
            if b"\r" in data or b"\n" in data:
                self._output += b"\r\n" + _as_typed(self._guest.console.splitlines()[-1] + "\n")
        self._news.set()

    async def close(self) -> None:
        self._is_closed = True
        self._news.set()

    def _lives(self) -> bool:
        return not self._is_closed and self._guest.power == "on" and self._guest.boots == self._boots


def _as_typed(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()
