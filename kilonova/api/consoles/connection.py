"""WebSocket connections with limits: uvicorn's, where a peer that floods or does not read holds little memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST = 256 * 1024  # bytes of one message
MOST_UNREAD = 512 * 1024  # bytes that a peer has not taken
RECEIVED = 16384  # bytes in the kernel: more small frames at once would stall all other clients
PING_SECONDS = 20.0  # between two, and for its answer


class _Messages(asyncio.Queue[Any]):
    """A queue that joins unread messages: each small message alone would cost a hundred times its size."""

    _queue: Any

    def _put(self, item: dict[str, Any]) -> None:
        data = item.get("bytes")
        last = self._queue[-1] if self._queue else {}
        if data is None:
            self._queue.append(item)
        elif isinstance(last.get("bytes"), bytearray):
            last["bytes"] += data
        else:
            self._queue.append({**item, "bytes": bytearray(data)})


class ConsoleConnection(WebSocketsSansIOProtocol):
    def __init__(self, *arguments: Any, **parts: Any) -> None:
        super().__init__(*arguments, **parts)
        self.queue = _Messages()
        self.on_lost: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        bare = transport.get_extra_info("socket")
        if bare is not None:
            with contextlib.suppress(OSError):
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.on_lost()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MOST_UNREAD:  # it asks and does not read
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # a peer that does not read would never let it close

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # by a refusal; else uvicorn logs an error for each
