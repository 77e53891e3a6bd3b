"""/v2/images/{image}/file: the bytes, in and out, never more than a piece of them in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kilonova.api.call import Call, nothing
from kilonova.api.image.images import image_of
from kilonova.domain.errors import Refused
from kilonova.services.image.image import DEACTIVATED, Image
from kilonova.threads import FILES

BYTES = "application/octet-stream"
PIECE = 512 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,19}")


async def upload(call: Call) -> Response:
    headers = call.request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != BYTES:
        raise Refused(415, f"Image data must have the content type {BYTES}.")
    size = headers.get("x-openstack-image-size") or headers.get("content-length")
    if size is not None and not _SIZE.fullmatch(size):
        raise Refused(400, "Invalid image size in the request's headers.")
    image = await image_of(call, "upload_image")
    await call.service.images.upload(image, call.request.stream(), int(size) if size is not None else None)
    return nothing()


async def download(call: Call) -> Response:
    image = await image_of(call, "download_image")
    if image.status == DEACTIVATED and not call.caller.is_admin:
        raise Refused(403, "The requested image has been deactivated. Its data may not be downloaded.")
    return await file_answer(call, image)


async def file_answer(call: Call, image: Image) -> Response:
    """Return the bytes of an image, or the requested range of them."""
    if not image.has_bytes or image.size is None or (not image.size and image.file is None):
        return nothing()
    headers = {"Content-MD5": image.checksum or "", "Accept-Ranges": "bytes"}
    start, end, status = 0, image.size, 200
    if (range_header := call.request.headers.get("range")) is not None:
        (start, end), status = range_of(range_header, image.size), 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{image.size}"
    headers["Content-Length"] = str(end - start)
    return FileResponse(await call.service.images.open(image), start, end - start, status, headers)


def range_of(range_header: str, size: int) -> tuple[int, int]:
    """The first byte, and the first one after the last."""
    if "," in range_header:
        raise Refused(400, "Requests with several ranges are not supported; request one range at a time.")
    match = _RANGE.fullmatch(range_header.strip())
    if match is None or match[1] == match[2] == "":
        raise _no_range(size)
    if not match[1]:
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    if start >= end:
        raise _no_range(size)
    return start, end


def _no_range(size: int) -> Refused:
    text = f"The range is not satisfiable: the image has {size} bytes."
    return Refused(416, text, headers={"Content-Range": f"bytes */{size}"})


class FileResponse(StreamingResponse):
    """A range of an open file as a response. The file is closed however the response ends, also when the client
    disconnects."""

    def __init__(self, file: BinaryIO, start: int, length: int, status: int, headers: dict[str, str]) -> None:
        super().__init__(_pieces(file, start, length), status, headers, BYTES)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


async def _pieces(file: BinaryIO, start: int, length: int) -> AsyncIterator[bytes]:
    await FILES.run(file.seek, start)
    while length > 0:
        piece = await FILES.run(file.read, min(PIECE, length))
        if not piece:
            return
        length -= len(piece)
        yield piece
