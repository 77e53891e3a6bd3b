"""The body of a create, understood: which source, which image."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.api.volume.wishes import described
from kilonova.domain.errors import Refused
from kilonova.domain.words import is_true
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.services.image.image import Image
from kilonova.services.image.listing import scope
from kilonova.services.volume.creating import NewVolume, no_image
from kilonova.services.volume.volume import bad_input

ABSENT = {"consistencygroup_id": "consistency group", "group_id": "group", "backup_id": "backup"}


async def new_volume(call: Call) -> NewVolume:
    wish = call.body["volume"]
    for word, noun in ABSENT.items():
        if wish.get(word):
            raise Refused(404, f"There is no {noun} {str(wish[word])[:80]}: this cloud has none.")
    if is_true(wish.get("multiattach") or False):
        text = "multiattach parameter has been removed: choose a volume type whose extra specs have multiattach."
        raise Refused(400, text)
    if wish.get("volume_type"):
        await require_type(call, wish["volume_type"])
    reference = wish.get("imageRef") or wish.get("image_id")
    if reference:
        call.require("volume:create_from_image")
    return NewVolume(
        size=_size(wish.get("size")),
        **described(wish),
        type=wish.get("volume_type") or "",
        zone=(wish.get("availability_zone") or "").strip(),
        metadata=wish.get("metadata") or {},
        snapshot_id=wish.get("snapshot_id") or "",
        source_id=wish.get("source_volid") or "",
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
        found = await call.service.images.list_(call.caller, ListQuery(named, limit=2))
    if len(found) > 1:
        raise Refused(409, f"Multiple matches found for '{reference[:80]}', use an ID to be more specific.")
    if not found:
        raise no_image(reference)
    return found[0]
