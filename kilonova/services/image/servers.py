"""The images that operations make of servers. They have no bytes yet: a host sends those (uploads.py).

The id of such an image belongs to one operation and is never used again, which fences every write here: a late writer
cannot create a discarded image, and an active image belongs to its owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kilonova.domain.image_bytes import ImageContent
from kilonova.schema.tables.image import image_ids
from kilonova.services.image.image import ACTIVE, HASH_ALGORITHM, QUEUED, SAVING, Image
from kilonova.services.image.records import fetch_image, insert_unless_known, remove_image, save_image
from kilonova.store import rows
from kilonova.world import Clock, Store, Tx

NO_BYTES = {  # size and checksums of nothing
    "size": 0,
    "virtual_size": 0,
    "checksum": "d41d8cd98f00b204e9800998ecf8427e",
    "hash_algorithm": HASH_ALGORITHM,
    "hash_value": (
        "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
        "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e"
    ),
}


def content_of(image: Image) -> ImageContent | None:
    if not image.has_bytes or image.file is None or image.size is None or not image.hash_value:
        return None
    return ImageContent(
        size=image.size,
        algorithm=image.hash_algorithm or HASH_ALGORITHM,
        checksum=image.hash_value,
        disk_format=image.disk_format or "",
    )


class ServerImages:
    def __init__(self, control: Store, clock: Clock) -> None:
        self._control, self._clock = control, clock

    async def create(self, image: Mapping[str, Any]) -> None:
        """Record the image, unless it is there or was deleted. The API and the operation's first step both do so."""
        now = self._clock.now()
        new = msgspec.convert({**image, "status": QUEUED, "created_at": now, "updated_at": now}, Image)

        await self._control.write(lambda tx: insert_unless_known(tx, new))

    async def status(self, image_id: str) -> str | None:
        """Return the status of the image; None if it was deleted."""

        async def body(tx: Tx) -> str | None:
            image = await fetch_image(tx, image_id)
            return None if image is None else image.status

        return await self._control.read(body, few=True)

    async def content(self, image_id: str) -> ImageContent | None:
        """Return what a host must find when it fetches the image. None: it was deleted, or has no bytes."""

        async def body(tx: Tx) -> Image | None:
            return await fetch_image(tx, image_id)

        image = await self._control.read(body, few=True)
        return None if image is None else content_of(image)

    async def discard(self, image_id: str) -> bool:
        """Delete the image with the bytes received so far. False: it is active, and stays."""

        async def body(tx: Tx) -> bool:
            await rows.put(tx, image_ids, unless_there=True, id=image_id)  # nobody creates it after this
            image = await fetch_image(tx, image_id, lock=True)
            if image is not None and image.status not in (QUEUED, SAVING):
                return False
            await remove_image(tx, image_id, None)  # whoever uploads it removes the file
            return True

        return await self._control.write(body)

    async def activate_empty(self, image_id: str, properties: Mapping[str, str]) -> bool:
        """Make a queued image active without bytes: it names the snapshots of volumes. False: it was deleted."""
        now = self._clock.now()

        async def body(tx: Tx) -> bool:
            image = await fetch_image(tx, image_id, lock=True)
            if image is None or image.status not in (QUEUED, ACTIVE):
                return False
            if image.status == QUEUED:
                more = {"status": ACTIVE, "container_format": "bare", "disk_format": "raw", "updated_at": now}
                merged = {**image.properties, **properties}
                await save_image(tx, image, msgspec.structs.replace(image, **more, **NO_BYTES, properties=merged))
            return True

        return await self._control.write(body)
