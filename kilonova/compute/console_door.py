"""The connection of a console from a host of a fleet to an API: a WebSocket that the host opens."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from kilonova.domain.console import HOST_PATH, PIECE, TOKEN_HEADER, ByteStream
from kilonova.domain.errors import Failed
from kilonova.streams import relay

OPEN_SECONDS = 10.0
MOST = 1024 * 1024  # bytes of one message
QUEUED = 4  # messages; more are not read


class WebSocketDoor:
    """`world.ConsoleDoor` of an agent."""

    def __init__(self, ca_file: str = "") -> None:
        self._ca_file = ca_file

    async def carry(self, url: str, token: str, stream: ByteStream) -> None:
        address = urlsplit(url)
        is_secure = address.scheme == "https"
        socket_url = urlunsplit(
            ("wss" if is_secure else "ws", address.netloc, f"{address.path.rstrip('/')}{HOST_PATH}", "", "")
        )
        trust = ssl.create_default_context(cafile=self._ca_file or None) if is_secure else None
        try:
            connection = await connect(
                socket_url,
                ssl=trust,
                additional_headers={TOKEN_HEADER: token},
                compression=None,
                open_timeout=OPEN_SECONDS,
                max_size=MOST,
                max_queue=QUEUED,
                proxy=None,
                user_agent_header=None,
            )
        except (OSError, TimeoutError, WebSocketException) as why:
            raise Failed("api_away", f"no connection to {url}: {why}") from why
        await relay(stream, _ClientStream(connection))


class _ClientStream:
    """`ByteStream` of a connection to an API."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        while True:
            try:
                data = await self._connection.recv(decode=False)
            except ConnectionClosed:
                return b""
            if data:
                return data

    async def write(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), PIECE):
                await self._connection.send(data[start : start + PIECE])
        except ConnectionClosed as why:
            raise ConnectionResetError("the API has closed the connection") from why

    async def close(self) -> None:
        await self._connection.close()
