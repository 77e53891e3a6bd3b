"""The metadata service of one network on one host: HTTP on a socket in the network's namespace.

A guest is identified by its address, which it cannot forge (filters.py), and reads only its own metadata. Each request
fetches it from the conductor: user data is not stored on the host's disks.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from kilonova.compute.config_drive import Files, find
from kilonova.domain.errors import Failed, NoAnswer

logger = logging.getLogger(__name__)
REQUEST_SECONDS = 10.0
MOST_BYTES = 16384  # of a request
MOST_CONNECTIONS = 256  # of one network
MOST_OF_ONE = 16  # of one guest: it does not keep the others of its network from being answered
Find = Callable[[str], Awaitable[Files | None]]  # by address; None: no port has it


class MetadataServer:
    def __init__(self, find: Find) -> None:
        self._find = find
        self._server: asyncio.Server | None = None
        self._open: Counter[str] = Counter()  # by address

    async def start(self, listening: socket.socket) -> None:
        self._server = await asyncio.start_server(self._on_connection, sock=listening, limit=MOST_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")[0]
        self._open[address] += 1
        try:
            if self._open[address] <= MOST_OF_ONE and self._open.total() <= MOST_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it disconnected, or never sent a request
        except Exception:
            logger.exception("metadata request failed")
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        status, body = await self._result(lines[0], lines[1:], writer.get_extra_info("peername")[0])
        kind = "application/json" if body[:1] in (b"{", b"[") else "text/plain; charset=utf-8"
        reply = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{reply}Connection: close\r\n\r\n".encode())
        if not lines[0].startswith("HEAD "):
            writer.write(body)
        await writer.drain()

    async def _result(self, line: str, headers: list[str], address: str) -> tuple[HTTPStatus, bytes]:
        parts = line.split(" ")
        if len(parts) != 3:
            return HTTPStatus.BAD_REQUEST, b""
        if parts[0] not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, b""
        if any(header.lower().startswith("x-forwarded-for:") for header in headers):
            return HTTPStatus.FORBIDDEN, b""  # a proxy in the guest: its client is not the guest
        try:
            tree = await self._find(address)
        except (NoAnswer, Failed) as why:
            logger.warning("metadata for %s is not available: %s", address, why)
            return HTTPStatus.SERVICE_UNAVAILABLE, b""
        if tree is None:
            return HTTPStatus.NOT_FOUND, b""
        content = find(tree, unquote(urlsplit(parts[1]).path))
        return (HTTPStatus.OK, content) if content is not None else (HTTPStatus.NOT_FOUND, b"")
