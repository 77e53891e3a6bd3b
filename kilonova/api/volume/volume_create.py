"""The body of a create, understood: which source, which image."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.api.volume.body_members import described
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.services.image.image import Image
from kilonova.services.image.listing import scope
from kilonova.services.volume.creating import NewVolume, no_image
from kilonova.services.volume.volume import bad_input

ABSENT = {"consistencygroup_id": "consistency group", "group_id": "group", "backup_id": "backup"}


async def new_volume(call: Call) -> NewVolume:
    request = call.body["volume"]
    for key, noun in ABSENT.items():
        if request.get(key):
            raise Refused(404, f"There is no {noun} {str(request[key])[:80]}: this cloud has none.")
    if is_true(request.get("multiattach") or False):
        text = "multiattach parameter has been removed: choose a volume type whose extra specs have multiattach."
        raise Refused(400, text)
    if request.get("volume_type"):
        await require_type(call, request["volume_type"])
    reference = request.get("imageRef") or request.get("image_id")
    if reference:
        call.require("volume:create_from_image")
    return NewVolume(
        size=_size(request.get("size")),
        **described(request),
        type=request.get("volume_type") or "",
        zone=(request.get("availability_zone") or "").strip(),
        metadata=request.get("metadata") or {},
        snapshot_id=request.get("snapshot_id") or "",
        source_id=request.get("source_volid") or "",
        image=await find_image(call, reference) if reference else None,
    )


async def require_type(call: Call, name_or_id: str) -> None:
    """Check that the caller may have volumes of that type."""
    if (await call.service.volumes.types.find(call.caller, name_or_id)).is_multiattach:
        call.require("volume:multiattach")


def _size(given: Any) -> int | None:
    if given is None:
        return None
    if not 1 <= int(given) < 2**31:
        raise bad_input(f"Volume size '{given}' must be an integer and greater than 0")
    return int(given)


async def find_image(call: Call, reference: str) -> Image:
    """Return the image with this id, URL (its last part is the id) or name."""
    try:
        return await call.service.images.find(call.caller, reference.rpartition("/")[2])
    except Refused:
        named = (Condition("name", EQUAL, reference), *scope(call.caller))
        images = await call.service.images.list_(call.caller, ListQuery(named, limit=2))
    if len(images) > 1:
        raise Refused(409, f"Multiple matches found for '{reference[:80]}', use an ID to be more specific.")
    if not images:
        raise no_image(reference)
    return images[0]
