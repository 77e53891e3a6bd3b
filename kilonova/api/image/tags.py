"""/v2/images/{image}/tags/{tag}: words to find an image by, one at a time."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.collection import EditTags, Tags
from kilonova.api.image import rules
from kilonova.api.image.schemas import IMAGE_FORM
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused
from kilonova.services.image.image import Image


class ImageTags(Tags):
    async def read(self, call: Call) -> list[str]:
        return list((await call.service.images.find(call.caller, call.path["image"])).tags)

    async def change(self, call: Call, edit: EditTags) -> list[str]:
        def edited(image: Image) -> Image:
            rules.require(call, "modify_image", image)
            return msgspec.structs.replace(image, tags=tuple(sorted(edit(list(image.tags)))))

        return list((await call.service.images.change(call.caller, call.path["image"], edited)).tags)

    def check(self, call: Call, tag: str) -> None:
        IMAGE_FORM.check({"tags": [tag]}, EVER)

    def missing(self, call: Call) -> Refused:
        return Refused(404, "The image has no such tag.")

    def added(self, call: Call, tag: str, is_new: bool) -> Response:
        return nothing()


TAGS = ImageTags()
