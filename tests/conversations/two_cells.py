"""A cloud of two cells for the conversations about them: host1 is in cell1, host2 in cell2.

It answers one thing more than a cloud does: `PUT /databases/cell2` with {"it": "refuses"}, "hangs" or "answers".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from kilonova.store import cell_store
from tests.support.outages import breakable
from tests.support.served import Served

CELL = "cell2"
OPTIONS = ("simulated.cells=2", "simulated.hosts=2", "DEFAULT.report_interval=0.2", "conductor.poll_seconds=0.2")


class TwoCells(Served):
    def __init__(self, path: Path, port: int) -> None:
        super().__init__(path, port, *OPTIONS)

    def __enter__(self) -> Self:
        cell_store.PAUSE = 0.05  # seconds until somebody looks whether it is back
        super().__enter__()
        self._outages = breakable(self.service, CELL)
        return self

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != f"/databases/{CELL}":
            await super().answer(scope, receive, send)
            return
        word = json.loads((await receive())["body"])["it"]
        if word == "answers":
            self._outages.end(CELL)
        else:
            self._outages.begin(CELL, word)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
