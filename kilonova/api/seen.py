"""A record of every HTTP request: counted for /metrics and, if configured, logged."""

from __future__ import annotations

import logging
import time
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kilonova.api.service_app import ROUTE, SAFE_IN_LOGS
from kilonova.measures import HTTP_SECONDS, requests_of

access = logging.getLogger("kilonova.access")


class Seen:
    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app, self._access_log = app, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - began
            route = scope.get(ROUTE, "other")
            requests_of(scope["method"] if route != "other" else "", route, status).inc()
            HTTP_SECONDS.inc(seconds)
            if self._access_log:
                _count(scope, status, seconds)


def _count(scope: Scope, status: int, seconds: float) -> None:
    client = scope["client"][0] if scope.get("client") else None
    path = quote(scope.get("raw_path", b"").partition(b"?")[0], safe=SAFE_IN_LOGS)
    text = "request: client=%s method=%s path=%s status=%d seconds=%.4f"
    access.info(text, client, scope["method"], path, status, seconds)
