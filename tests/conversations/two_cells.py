"""A cloud of two cells for the conversations about them: host1 is in cell1, host2 in cell2.

It answers one thing more than a cloud does: `PUT /databases/cell2` with {"it": "refuses"}, "hangs" or "answers".
"""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, Self

from kilonova.api.app import make_app
from kilonova.api.web import serve_web
from kilonova.store import cell_store
from tests.support.embedded import Embedded
from tests.support.outages import breakable

CELL = "cell2"
OPTIONS = ("simulated.cells=2", "simulated.hosts=2", "DEFAULT.report_interval=0.2", "conductor.poll_seconds=0.2")


class TwoCells(Embedded):
    def __init__(self, path: Path, port: int) -> None:
        super().__init__(path, *OPTIONS)
        self._port = port

    def __enter__(self) -> Self:
        cell_store.PAUSE = 0.05  # seconds until somebody looks whether it is back
        super().__enter__()
        self._outages = breakable(self.service, CELL)
        self._pages = make_app(self.service)
        self.wait(self._listen())
        return self

    def __exit__(self, *how: object) -> None:
        self.wait(self._hang_up())
        super().__exit__(*how)

    async def _listen(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self._answer(scope, receive, send)

        self._stopping = asyncio.Event()
        listener = socket.create_server(("127.0.0.1", self._port))
        self._serving = asyncio.create_task(serve_web(app, listener, self._stopping))

    async def _hang_up(self) -> None:
        self._stopping.set()
        await self._serving

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != f"/databases/{CELL}":
            await self._pages(scope, receive, send)
            return
        word = json.loads((await receive())["body"])["it"]
        if word == "answers":
            self._outages.end(CELL)
        else:
            self._outages.begin(CELL, word)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
