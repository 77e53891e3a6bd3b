"""The HTTP server: one socket, opened before anything else is touched, served until somebody says stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from kilonova.api.connections import Connections, LimitedConnection
from kilonova.settings import HttpOptions

GRACE_SECONDS = 5  # for requests in flight when it ends
BACKLOG = 2048
TICKS = 10  # of uvicorn's server, in a second


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections
        options = connections.options
        shortest = min(options.header_timeout, options.client_socket_timeout)
        self._pace = max(1, min(TICKS, int(shortest)))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's business, not the web server's."""
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % self._pace == 0:
            self._connections.end_overdue(asyncio.get_running_loop().time())
        return await super().on_tick(counter)


async def serve_web(
    app: ASGIApp, listener: socket.socket, stopping: asyncio.Event, connections: Connections | None = None
) -> None:
    """Returns when it is told to stop and the requests in flight were answered."""
    connections = connections or Connections(HttpOptions())
    proxies = list(connections.options.trusted_proxies)
    make_connection: Any = partial(LimitedConnection, connections)
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=make_connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    server = _Server(config, connections)
    serving = asyncio.create_task(server.serve([listener]))
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait([serving, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    server.should_exit = True
    await serving
