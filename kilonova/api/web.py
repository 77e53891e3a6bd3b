"""The HTTP server: one socket, opened before anything else is touched, served until somebody says stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

GRACE_SECONDS = 5  # for requests in flight when it ends
BACKLOG = 2048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's business, not the web server's."""
        yield


async def serve_web(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event) -> None:
    """Returns when it is told to stop and the requests in flight were answered."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait([serving, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    server.should_exit = True
    await serving
