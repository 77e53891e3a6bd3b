"""Upload and download of image bytes by a host, over HTTP with the token of the order. The bus carries no disks; it
only gives the address of a running API."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from kilonova.bus import IMAGE_ADDRESS
from kilonova.compute.http_client import PASSING, answer_of, connect, error_in
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.image_bytes import TOKEN_HEADER, ImageOrder, UploadOrder
from kilonova.services.image.uploads import TAKEN_OVER
from kilonova.threads import COPIES
from kilonova.world import Bus, Clock

T = TypeVar("T")
PATIENCE = 60.0  # seconds without an API that answers; then the step fails, and may be tried again
PAUSE = 2.0
PIECE = 1024 * 1024
CUT = (OSError, http.client.HTTPException, NoAnswer)  # another try may do better


class HttpImageBytes:
    """`world.Uploads` of an agent, and where it fetches images."""

    def __init__(self, bus: Bus, clock: Clock, *, url: str = "", ca_file: str = "") -> None:
        """`url`: of an API; without one, an API's address is requested over the bus."""
        self._bus, self._clock, self._url, self._ca_file = bus, clock, url, ca_file

    async def send(self, order: UploadOrder, content: Callable[[], AsyncIterator[bytes]]) -> None:
        ends = self._clock.monotonic() + PATIENCE
        while True:
            try:
                await self._send(order, content())
                return
            except CUT as why:
                if self._clock.monotonic() > ends:
                    raise Failed("image_service_away", f"image {order.image}: it cannot be uploaded: {why}") from why
            await self._clock.sleep(PAUSE)

    async def _send(self, order: UploadOrder, pieces: AsyncIterator[bytes]) -> None:
        async with self._connected(order.image) as api:
            await api.run(_begin, f"{api.path}?{urlencode({'disk_format': order.disk_format})}", order)
            try:
                async for piece in pieces:
                    await api.run(http.client.HTTPConnection.send, piece)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it does not want the rest; its answer may say why
            status, answer = await api.run(answer_of)
        _judge(order.image, "upload", status, answer)

    async def fetch(self, order: ImageOrder, offset: int) -> AsyncIterator[bytes]:
        """Yield the bytes from this offset on. It may end early, or raise one of `CUT`: then request the rest. Raise
        `Failed` if that is useless."""
        async with self._connected(order.image) as api:
            headers = {TOKEN_HEADER: order.token} | ({"Range": f"bytes={offset}-"} if offset else {})
            response = await api.run(_ask, api.path, headers)
            if response.status != (206 if offset else 200):
                answer = await api.run(lambda _: response.read(PIECE))
                _judge(order.image, "download", response.status, answer)
                raise http.client.HTTPException(f"the answer was {response.status}")
            while piece := await api.run(lambda _: response.read(PIECE)):
                yield piece

    @contextlib.asynccontextmanager
    async def _connected(self, image: str) -> AsyncIterator[_ApiConnection]:
        """A connection to an API."""
        url: SplitResult = urlsplit(self._url or (await self._bus.call(IMAGE_ADDRESS, b"")).decode())
        path = f"{url.path.rstrip('/')}/kilonova/v1/image-bytes/{quote(image, safe='')}"
        connection = connect(url.scheme, url.netloc, self._ca_file)
        try:
            await COPIES.run(connection.connect)
            yield _ApiConnection(connection, path)
        finally:
            connection.close()


class _ApiConnection:
    """A connection, and the image's path there. Cancelled, a call hangs up and waits for its thread: closing what a
    thread still reads would hold up the event loop as long as that waits."""

    def __init__(self, connection: http.client.HTTPConnection, path: str) -> None:
        self._connection, self.path = connection, path
        self._hang_up = _HangUp(connection.sock)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await COPIES.run_until_stopped(self._hang_up, work, self._connection, *arguments)


class _HangUp(threading.Event):
    """An event that, once set, ends every wait for the other end of the connection."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._socket = connected  # a connection forgets it once the answer says that it is the last one

    def set(self) -> None:
        super().set()
        with contextlib.suppress(OSError):  # the other end was first
            # Not the method of a TLS socket, which removes state that the thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def _begin(connection: http.client.HTTPConnection, path: str, order: UploadOrder) -> None:
    connection.putrequest("PUT", path)
    connection.putheader(TOKEN_HEADER, order.token)
    connection.putheader("Content-Type", "application/octet-stream")
    connection.putheader("Content-Length", str(order.size))
    connection.endheaders()


def _judge(image: str, what: str, status: int, answer: bytes) -> None:
    if status in (200, 204):
        return
    code, message = error_in(status, answer)
    if status in PASSING or code == TAKEN_OVER:
        raise http.client.HTTPException(f"{status}: {message}")
    raise Failed(code, f"image {image}: the {what} was refused: {message}", final=True)
