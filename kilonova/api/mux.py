"""The multiplexer of one port: the first segments of a path select the service."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class Mux:
    def __init__(self, apps: Mapping[str, ASGIApp], pages: ASGIApp, sockets: ASGIApp | None = None) -> None:
        """`apps` by prefix ("/compute/v2.1", "/compute"); the longest one that fits wins, else the pages answer.
        `sockets`: what answers WebSockets, whatever their path."""
        self._sockets = sockets
        self._apps = sorted(apps.items(), key=lambda item: -len(item[0]))
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and self._sockets is not None:
            await self._sockets(scope, receive, send)
            return
        path = scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
        for prefix, app in self._apps:
            if path == prefix or path.startswith(prefix + "/"):
                scope["service_path"] = path[len(prefix) :]
                await app(scope, receive, send)
                return
        await self._pages(scope, receive, send)
