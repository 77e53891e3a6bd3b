"""A load generator's HTTP: keep-alive connections, one request at a time each, and no more work than that needs, so
that on a small machine the server under test gets what time there is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import msgspec


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Connection(asyncio.Protocol):
    """Names of headers come back in lower case."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._chunks: list[bytes] = []
        self._waiting: asyncio.Future[Answer] | None = None
        self._transport: Any = None

    async def ask(self, request: bytes) -> Answer:
        assert self._waiting is None, "one request at a time"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionError("the server closed the connection"))

    # -- httptools ----------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        done, self._answer = self._answer, Answer()
        done.status, done.body = self._parser.get_status_code(), b"".join(self._chunks)
        self._chunks.clear()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(done)


@dataclass(frozen=True)
class Client:
    """Where the server is and who asks."""

    port: int
    token: str
    version: str = "2.90"  # of compute

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """Made once where it is sent often."""
        content = b"" if body is None else msgspec.json.encode(body)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"X-Auth-Token: {self.token}",
            f"OpenStack-API-Version: compute {self.version}",
            "Accept: application/json",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        return "\r\n".join([*lines, "", ""]).encode() + content

    @contextlib.asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[Sequence[Connection]]:
        loop, made = asyncio.get_running_loop(), []
        try:
            for _ in range(count):
                made.append((await loop.create_connection(Connection, "127.0.0.1", self.port))[1])
            yield made
        finally:
            for connection in made:
                connection.close()
