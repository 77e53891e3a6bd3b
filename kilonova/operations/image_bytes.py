"""Uploads by hosts of images made of servers, and downloads of images that servers are made of: checked by the token
of the order, then as any upload and download."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from kilonova.bus import IMAGE_ADDRESS, in_cell
from kilonova.domain.errors import Failed, KilonovaError, Refused
from kilonova.domain.image_bytes import UploadOrder
from kilonova.engine.core import Engine
from kilonova.engine.tickets import FETCH, redeem
from kilonova.services.image.image import DISK_FORMATS, Image
from kilonova.services.image.service import Images
from kilonova.services.image.uploads import TAKEN_OVER, deleted_meanwhile

PASSING = ("image_storage", TAKEN_OVER)  # refusals that another try may not meet


async def receive(engine: Engine, images: Images, order: UploadOrder, chunks: AsyncIterator[bytes]) -> None:
    """Raise `Refused` unless the image is active afterwards."""
    await redeem(engine, order.token, order.image)
    if order.disk_format not in DISK_FORMATS:
        raise Refused("bad_request", f"disk_format {order.disk_format[:80]!r}: use one of {', '.join(DISK_FORMATS)}")
    await images.receive_disk(order.image, order.disk_format, chunks, order.size)


async def readable(engine: Engine, images: Images, token: str, image_id: str) -> Image:
    """Return the image if the token lets its host fetch it. Raise `Refused` otherwise, or if it was deleted
    meanwhile."""
    await redeem(engine, token, image_id, FETCH)
    image = await images.record(image_id)
    if image is None or not image.has_bytes:
        raise deleted_meanwhile(image_id)
    return image


class DirectImageBytes:
    """`world.Uploads` of hosts that live in the API's own process."""

    def __init__(self, engine: Engine, images: Images) -> None:
        self._engine, self._images = engine, images

    async def send(self, order: UploadOrder, content: Callable[[], AsyncIterator[bytes]]) -> None:
        try:
            await receive(self._engine, self._images, order, content())
        except Refused as why:
            raise Failed(why.code, why.message, final=why.code not in PASSING) from why
        except Failed:
            raise
        except KilonovaError as why:
            raise Failed("image_service_away", f"image {order.image}: it cannot be uploaded: {why}") from why


async def serve_address(engine: Engine, url: str) -> None:
    """Give hosts the address of this API; of several APIs, a running one answers."""

    async def answer_question(question: bytes) -> bytes:
        return url.encode()

    db, bus = engine.world.db, engine.world.bus
    for prefix in sorted({"", *(db.bus_prefix(name) for name in db.cells())}):
        await bus.serve(in_cell(prefix, IMAGE_ADDRESS), answer_question, shared=True)
