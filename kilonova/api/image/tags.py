"""/v2/images/{image}/tags/{tag}: words to find an image by, one at a time."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.image import rules
from kilonova.api.image.schemas import IMAGE_FORM
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused
from kilonova.services.image.image import Image


async def add(call: Call) -> Response:
    tag = call.path["tag"]
    IMAGE_FORM.check({"tags": [tag]}, EVER)

    def edit(image: Image) -> Image:
        rules.require(call, "modify_image", image)
        return msgspec.structs.replace(image, tags=tuple(sorted({*image.tags, tag})))

    await call.service.images.change(call.caller, call.path["image"], edit)
    return nothing()


async def remove(call: Call) -> Response:
    tag = call.path["tag"]

    def edit(image: Image) -> Image:
        rules.require(call, "modify_image", image)
        if tag not in image.tags:
            raise Refused(404, "The image has no such tag.")
        return msgspec.structs.replace(image, tags=tuple(one for one in image.tags if one != tag))

    await call.service.images.change(call.caller, call.path["image"], edit)
    return nothing()
