"""Images of servers in a simulated cloud: hosts send their bytes over the bus, an api takes them as it does by HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kilonova.domain.errors import Failed, NoAnswer, Refused
from kilonova.domain.image_bytes import UploadOrder
from kilonova.domain.json import JsonObject
from kilonova.engine.core import Engine
from kilonova.operations.image_bytes import PASSING, receive
from kilonova.services.image.service import Images
from kilonova.sim.lab.network import PROJECT
from kilonova.world import Bus, Clock

T = TypeVar("T")
SUBJECT = "image.upload"
PATIENCE, PAUSE = 60.0, 2.0  # seconds


class Upload(msgspec.Struct, frozen=True):
    order: UploadOrder
    content: bytes


class Inline:
    """A runner of blocking calls that runs them immediately: simulated processes have no threads."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)


class BusUploads:
    """`world.Uploads` of a simulated host. A message may get lost or come twice; HTTP does nothing worse."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus, self._clock = bus, clock

    async def send(self, order: UploadOrder, content: Callable[[], AsyncIterator[bytes]]) -> None:
        ends = self._clock.monotonic() + PATIENCE
        while True:
            sent = Upload(order, b"".join([piece async for piece in content()]))
            try:
                answer = msgspec.json.decode(await self._bus.call(SUBJECT, msgspec.json.encode(sent)))
            except NoAnswer as why:
                answer = {"code": PASSING[0], "message": str(why)}
            if not answer:
                return
            if answer["code"] not in PASSING or self._clock.monotonic() > ends:
                raise Failed(answer["code"], answer["message"], final=answer["code"] not in PASSING)
            await self._clock.sleep(PAUSE)


async def serve_uploads(engine: Engine, folder: Path) -> None:
    world = engine.world
    images = Images(world.db.control, world.clock, world.ids, folder, threads=Inline())

    async def take(body: bytes) -> bytes:
        sent = msgspec.json.decode(body, type=Upload)
        try:
            await receive(engine, images, sent.order, _pieces(sent.content))
        except Refused as why:
            return msgspec.json.encode({"code": why.code, "message": why.message})
        return b"{}"

    await world.bus.serve(SUBJECT, take, shared=True)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def image_params(image_id: str, name: str, server: str) -> JsonObject:
    """Return the API's parameters of a request for an image of a server."""
    properties = {"instance_uuid": server, "image_type": "snapshot"}
    return {"image": {"id": image_id, "name": name, "owner": PROJECT, "properties": properties}}
