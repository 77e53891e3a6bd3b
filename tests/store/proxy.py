"""A line to PostgreSQL that can be cut at a chosen moment."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit


class CuttingProxy:
    """Passes everything on until a client says `word`; then cuts, either before it or once the server has answered."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.word: bytes | None = None
        self.deliver = False
        self.cuts = 0

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        host = f"{self._parts.username}@127.0.0.1:{port}"
        self.url = urlunsplit(self._parts._replace(netloc=host))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def cut_at(self, word: bytes, *, deliver: bool) -> None:
        self.word, self.deliver = word, deliver

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        down, up = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        answering = asyncio.create_task(self._copy(down, writer))
        while chunk := await reader.read(65536):
            if self.word is not None and self.word in chunk:
                self.word = None
                self.cuts += 1
                answering.cancel()
                if self.deliver:
                    await asyncio.gather(answering, return_exceptions=True)
                    up.write(chunk)
                    assert await down.read(1)  # it is done, and the client will never hear of it
                break
            up.write(chunk)
        up.transport.abort()
        writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
        writer.close()
