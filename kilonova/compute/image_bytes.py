"""How a host sends and fetches the bytes of images: by HTTP at an API of the cloud, with the token that came with the
order. The bus carries no disks; it only tells the address of an API that is there now."""

from __future__ import annotations

import http.client
from collections.abc import AsyncIterator, Callable
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from kilonova.bus import IMAGE_ADDRESS
from kilonova.compute.http_client import PASSING, answer_of, connect, error_in
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.image_bytes import TOKEN_HEADER, ImageOrder, UploadOrder
from kilonova.services.image.uploads import TAKEN_OVER
from kilonova.threads import FILES
from kilonova.world import Bus, Clock

PATIENCE = 60.0  # seconds without an API that answers; then the step fails, and may be tried again
PAUSE = 2.0
PIECE = 1024 * 1024
CUT = (OSError, http.client.HTTPException, NoAnswer)  # another try may do better


class HttpImageBytes:
    """`world.Uploads` of an agent, and where it fetches images."""

    def __init__(self, bus: Bus, clock: Clock, *, url: str = "", ca_file: str = "") -> None:
        """`url`: of an API; without one, an API is asked for its address over the bus."""
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
        connection, path = await self._open(order.image)
        try:
            await FILES.run(_begin, connection, f"{path}?{urlencode({'disk_format': order.disk_format})}", order)
            try:
                async for piece in pieces:
                    await FILES.run(connection.send, piece)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it does not want the rest; its answer may say why
            status, answer = await FILES.run(answer_of, connection)
        finally:
            connection.close()
        _judge(order.image, "upload", status, answer)

    async def fetch(self, order: ImageOrder, offset: int) -> AsyncIterator[bytes]:
        """The bytes from this one on. It may end early, or raise one of `CUT`: then ask for the rest. Raises `Failed`
        where that is useless."""
        connection, path = await self._open(order.image)
        try:
            headers = {TOKEN_HEADER: order.token} | ({"Range": f"bytes={offset}-"} if offset else {})
            await FILES.run(lambda: connection.request("GET", path, headers=headers))
            response = await FILES.run(connection.getresponse)
            if response.status != (206 if offset else 200):
                _judge(order.image, "download", response.status, await FILES.run(response.read, PIECE))
                raise http.client.HTTPException(f"the answer was {response.status}")
            while piece := await FILES.run(response.read, PIECE):
                yield piece
        finally:
            connection.close()

    async def _open(self, image: str) -> tuple[http.client.HTTPConnection, str]:
        """A connection to an API, and the image's path there."""
        url: SplitResult = urlsplit(self._url or (await self._bus.call(IMAGE_ADDRESS, b"")).decode())
        path = f"{url.path.rstrip('/')}/kilonova/v1/image-bytes/{quote(image, safe='')}"
        return connect(url.scheme, url.netloc, self._ca_file), path


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
