"""/image-bytes: hosts send the bytes of images that are made of their servers, and fetch those that their servers are
made of. The token that came with the order is all they need."""

from __future__ import annotations

import re

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.image.file import file_answer
from kilonova.domain.errors import Refused
from kilonova.domain.image_bytes import TOKEN_HEADER, UploadOrder
from kilonova.operations.image_bytes import readable, receive

_SIZE = re.compile(r"[0-9]{1,19}")


async def upload(call: Call) -> Response:
    """Take the bytes of an image from the host that has the token for it."""
    headers = call.request.headers
    size = headers.get("content-length", "")
    if not _SIZE.fullmatch(size):
        raise Refused("bad_request", "Content-Length: the size of the image in bytes is needed")
    order = UploadOrder(
        image=call.path["image"],
        token=headers.get(TOKEN_HEADER, ""),
        size=int(size),
        disk_format=call.query.get("disk_format", ""),
    )
    await receive(call.engine, call.service.images, order, call.request.stream())
    return nothing()


async def download(call: Call) -> Response:
    """Send an image, or a range of its bytes, to the host that has the token for it."""
    token = call.request.headers.get(TOKEN_HEADER, "")
    return await file_answer(call, await readable(call.engine, call.service.images, token, call.path["image"]))
