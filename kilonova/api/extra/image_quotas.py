"""/image-quotas/{project}: bytes of images that a project has and may have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.reading import decode, read_body
from kilonova.services.image.quotas import ImageUsage


class LimitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=-1, le=2**62)] | None  # bytes; -1: none; null: the default again


async def show(call: Call) -> Response:
    """Show how many bytes of images a project may have, and has."""
    return _answer(call, await call.service.images.quotas.show(call.path["project"]))


async def change(call: Call) -> Response:
    """Set how many bytes of images a project may have."""
    request = decode(await read_body(call.request), LimitBody)
    return _answer(call, await call.service.images.quotas.set(call.path["project"], request.limit))


def _answer(call: Call, usage: ImageUsage) -> Response:
    view = {"project": call.path["project"], "limit": usage.limit, "used": usage.used, "images": usage.images}
    return answer({"image_quota": view})
