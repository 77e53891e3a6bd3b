"""The image of a rebuild: check that the server may have it, and choose the operation.

A server that boots from a volume has its own operation: below 2.93 its volume keeps its content, so the image may not
change; from there on the volume is re-imaged, with the same image too. The scheduler checks later, after the request
was accepted, that the server's host may run the image.
"""

from __future__ import annotations

from typing import NamedTuple

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json
from kilonova.domain.volume import ServerVolume
from kilonova.operations.checks.hardware import check_same_hardware
from kilonova.operations.checks.images import check_fit, check_memory, find_image, image_details
from kilonova.services.image.image import Image
from kilonova.services.volume.creating import check_image, image_facts
from kilonova.services.volume.volume import IN_USE
from kilonova.store.server_records import ServerRecord


class RebuildImage(NamedTuple):
    operation: str
    params: dict[str, Json]


def root_volume(record: ServerRecord) -> ServerVolume | None:
    return next((one for one in record.volumes if one.is_root), None)


async def image_for(call: Call, record: ServerRecord, image_id: str, *, reimages: bool) -> RebuildImage:
    """`reimages`: as from 2.93 on."""
    image, root = await find_image(call.requester, image_id), root_volume(record)
    check_same_hardware(record.flavor, image)
    details = image_details(image)
    params: dict[str, Json] = {
        "image": image.id,
        "image_properties": details["image_properties"],
        "image_format": details["image_format"],
        "image_marker": details["image_marker"],
    }
    if root is None:
        check_fit(call.requester, record.flavor, image)
        return RebuildImage("rebuild", params)
    check_memory(record.flavor, image)
    before = await _check_volume(call, root, image, reimages=reimages)
    about: dict[str, Json] = {"image_properties": image_facts(image), "image_before": before, "reimage": reimages}
    return RebuildImage("rebuild_volume", {**params, **about})


async def _check_volume(call: Call, root: ServerVolume, image: Image, *, reimages: bool) -> str:
    """Return the image that the volume was made from."""
    try:
        state = await call.service.volumes.servers.state(root.volume_id)
        before = state.image_metadata.get("image_id", "")
        if not reimages:
            if image.id != before:
                raise Refused(400, "Unable to rebuild with a different image for a volume-backed server.")
            return before
        check_image(image, state.size)
    except Refused as why:
        raise Refused(400, why.message) from None
    if state.status != IN_USE:
        raise Refused(400, f"Volume {root.volume_id} is {state.status}; it is re-imaged only while it is {IN_USE}.")
    return before
