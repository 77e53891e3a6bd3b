"""An embedded cloud that listens on a port of this process, for clients that need a socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, Self

from kilonova.api.app import make_app
from kilonova.api.web import serve_web
from tests.support.embedded import Embedded


class Served(Embedded):
    def __init__(self, path: Path, port: int, *options: str) -> None:
        super().__init__(path, *options, url=f"http://127.0.0.1:{port}")
        self._port = port

    def __enter__(self) -> Self:
        super().__enter__()
        self._pages = make_app(self.service)
        self.wait(self._listen())
        return self

    def __exit__(self, *how: object) -> None:
        self.wait(self._hang_up())
        super().__exit__(*how)

    async def _listen(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self.answer(scope, receive, send)

        self._stopping = asyncio.Event()
        listener = socket.create_server(("127.0.0.1", self._port))
        self._serving = asyncio.create_task(serve_web(app, listener, self._stopping))

    async def _hang_up(self) -> None:
        self._stopping.set()
        await self._serving

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; a subclass may know requests that a cloud does not."""
        await self._pages(scope, receive, send)
