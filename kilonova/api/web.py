"""The HTTP server: one socket, opened before anything else, served until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from kilonova.api.connections import Connections, LimitedConnection
from kilonova.api.consoles.connection import MOST, PING_SECONDS, ConsoleConnection
from kilonova.api.listening import BACKLOG
from kilonova.api.tls import Certificate, TlsServer
from kilonova.settings import HttpOptions

GRACE_SECONDS = 5  # for requests in flight when it ends
TICKS = 10  # of uvicorn's server, in a second
# Clients that wait for a server ask every 5 seconds on one connection. uvicorn would close it just then, and such a
# client takes that for an error of the cloud.
KEEP_ALIVE_SECONDS = 75


class _UvicornServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections, certificate: Certificate | None) -> None:
        super().__init__(config)
        self._connections, self._certificate = connections, certificate
        options = connections.options
        shortest = min(options.header_timeout, options.client_socket_timeout)
        self._pace = max(1, min(TICKS, int(shortest)))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, with connections that have limits."""
        loop, certificate = asyncio.get_running_loop(), self._certificate
        self.servers: list[Any] = []
        for listener in sockets or []:
            if certificate is not None:
                self.servers.append(TlsServer(listener, certificate, self._connections, self._make_connection))
            else:
                self.servers.append(await loop.create_server(self._make_connection, sock=listener, backlog=BACKLOG))
        self.started = True

    def _make_connection(self, group: str | None = None) -> LimitedConnection:
        parts = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        return LimitedConnection(self._connections, group=group, **parts)

    async def on_tick(self, counter: int) -> bool:
        if counter % self._pace == 0:
            self._connections.end_overdue(asyncio.get_running_loop().time(), self._pace / TICKS)
        return await super().on_tick(counter)


async def serve_web(
    app: ASGIApp,
    listener: socket.socket,
    stopping: asyncio.Event,
    connections: Connections | None = None,
    certificate: Certificate | None = None,
    *,
    websockets: bool = False,
) -> None:
    """Serve until `stopping` is set and the requests in flight are answered."""
    connections = connections or Connections(HttpOptions())
    proxies = list(connections.options.trusted_proxies)
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=LimitedConnection,
        ws=ConsoleConnection if websockets else "none",
        ws_max_size=MOST,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    server = _UvicornServer(config, connections, certificate)
    serving = asyncio.create_task(server.serve([listener]))
    stop_wait = asyncio.create_task(stopping.wait())
    await asyncio.wait([serving, stop_wait], return_when=asyncio.FIRST_COMPLETED)
    stop_wait.cancel()
    server.should_exit = True
    await serving
