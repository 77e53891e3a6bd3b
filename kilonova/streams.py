"""Streams of bytes between a guest's console and its user: sockets, and the relay from one stream to another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

from kilonova.domain.console import PIECE, ByteStream

HIGH_WATER = 2 * PIECE  # bytes that one stream holds for a reader that is slow


class SocketStream:
    """`ByteStream` of a connected socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(high=HIGH_WATER)

    async def read(self) -> bytes:
        try:
            return await self._reader.read(PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()


async def open_socket(path: Path) -> SocketStream:
    """Connect to a unix socket. Raise OSError."""
    return SocketStream(*await asyncio.open_unix_connection(path, limit=PIECE))


async def use_socket(connected: socket.socket) -> SocketStream:
    """Return a stream over a unix socket that is connected already."""
    return SocketStream(*await asyncio.open_unix_connection(sock=connected, limit=PIECE))


async def relay(one: ByteStream, other: ByteStream, *, idle: float = 0.0, ends: float = 0.0) -> str:
    """Carry bytes both ways until a side ends; close both. Return why it ended: "closed", "idle" or "expired".

    `idle`: seconds without a byte in either direction; `ends`: seconds in all. 0: no limit."""
    moved = asyncio.Event()
    pumps = [asyncio.create_task(_pump(one, other, moved)), asyncio.create_task(_pump(other, one, moved))]
    watch = asyncio.create_task(_silence(moved, idle)) if idle else None
    tasks = [*pumps, *([watch] if watch is not None else [])]
    try:
        ended, _ = await asyncio.wait(tasks, timeout=ends or None, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (one, other):
            with contextlib.suppress(OSError):
                await stream.close()
    if not ended:
        return "expired"
    return "idle" if watch in ended else "closed"


async def _pump(source: ByteStream, target: ByteStream, moved: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read():
            moved.set()
            await target.write(data)
            moved.set()


async def _silence(moved: asyncio.Event, seconds: float) -> None:
    """Return when nothing has moved for so long."""
    while True:
        moved.clear()
        try:
            async with asyncio.timeout(seconds):
                await moved.wait()
        except TimeoutError:
            return
