"""Serial lines that several users share: the guest's output goes to all of them, and each of them may write to the
guest.

QEMU serves one connection at a time, and a guest stops when its line is not read. So the agent has that one connection
and reads it always; a user who does not keep up is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kilonova.domain.console import PIECE, SLOW, ByteStream

Key = tuple[str, int]  # server, copy


class SerialLines:
    """The serial lines of one host that are in use."""

    def __init__(self, open_line: Callable[[str, int], Awaitable[ByteStream]]) -> None:
        self._open = open_line
        self._lines: dict[Key, _Line] = {}
        self._opening = asyncio.Lock()

    async def join(self, server: str, copy: int) -> ByteStream:
        key = (server, copy)
        async with self._opening:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(await self._open(server, copy), lambda ended: self._drop(key, ended))
            return line.join()

    def _drop(self, key: Key, ended: _Line) -> None:
        if self._lines.get(key) is ended:  # else the next one was opened meanwhile
            del self._lines[key]


class _Line:
    def __init__(self, stream: ByteStream, on_end: Callable[[_Line], None]) -> None:
        self.stream, self._on_end = stream, on_end
        self._users: set[_User] = set()
        self._writing = asyncio.Lock()
        self._reading = asyncio.create_task(self._read())

    def join(self) -> ByteStream:
        user = _User(self)
        self._users.add(user)
        return user

    async def leave(self, user: _User) -> None:
        """Remove a user. This may be repeated: every user of a stream closes it."""
        if user not in self._users:
            return
        self._users.discard(user)
        if not self._users:
            self._on_end(self)
            self._reading.cancel()
            await self.stream.close()

    async def write(self, data: bytes) -> None:
        async with self._writing:
            await self.stream.write(data)

    async def _read(self) -> None:
        try:
            while data := await self.stream.read():
                for user in list(self._users):
                    user.give(data)
        finally:
            self._on_end(self)
            for user in list(self._users):
                user.end()
            await self.stream.close()


class _User:
    """`ByteStream` of one of them."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._waiting = bytearray()
        self._is_ended = False
        self._news = asyncio.Event()

    def give(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > SLOW:
            self.end()  # it does not read: neither the guest nor the others wait for it
        if not self._is_ended:
            self._waiting += data
            self._news.set()

    def end(self) -> None:
        self._is_ended = True
        self._news.set()

    async def read(self) -> bytes:
        while not self._waiting and not self._is_ended:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._waiting[:PIECE])
        del self._waiting[:PIECE]
        return data

    async def write(self, data: bytes) -> None:
        if self._is_ended:
            raise ConnectionResetError("the serial line has ended")
        await self._line.write(data)

    async def close(self) -> None:
        self.end()
        await self._line.leave(self)
