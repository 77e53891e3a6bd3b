"""The door to images: records in the control database, bytes in a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.records.query import ListQuery
from kilonova.services.image import listing, seeds
from kilonova.services.image.files import ImageFiles, Runs
from kilonova.services.image.image import Image, no_such_image
from kilonova.services.image.members import Members
from kilonova.services.image.records import fetch_image, insert_image, remove_image, save_image
from kilonova.services.image.uploads import CAPS, Caps, Uploads, deleted_meanwhile
from kilonova.store.reserve import DiskReserve
from kilonova.threads import FILES
from kilonova.world import Clock, Ids, Store, Tx


class ImageFile(NamedTuple):
    path: Path
    disk_format: str  # as declared: never to be trusted


class Images:
    def __init__(
        self,
        control: Store,
        clock: Clock,
        ids: Ids,
        folder: Path,
        caps: Caps = CAPS,
        reserve: DiskReserve | None = None,
        threads: Runs = FILES,
    ) -> None:
        self._control, self._clock, self._ids = control, clock, ids
        self._files = ImageFiles(folder, reserve, threads)
        self._uploads = Uploads(control, clock, ids, self._files, caps)
        self.quotas = self._uploads.quotas
        self.members = Members(control, clock)

    async def prepare(self, owner: str, guest_image: str = "") -> None:
        """Clean up after a crash and create a new cloud's images: at every start, before the first request.

        `owner` is the project that owns them. `guest_image` is the file of one more image, a qcow2 that real guests
        boot from.
        """
        await self._uploads.clean()
        await seeds.plant(self._control, self._clock, self._files, owner)
        if guest_image:
            await seeds.plant_file(self._control, self._clock, self._files, owner, Path(guest_image))

    async def remove_expired(self) -> None:
        """Remove files that were set aside long ago."""
        await self._files.remove_expired(self._clock.now())

    async def find(self, caller: Caller, image_id: str) -> Image:
        """Return an image that the caller may see; others do not exist for it."""

        async def body(tx: Tx) -> Image:
            return await _visible(tx, caller, image_id)

        return await self._control.read(body, few=True)

    async def list_(self, caller: Caller, wanted: ListQuery) -> list[Image]:
        async def body(tx: Tx) -> list[Image]:
            return await listing.list_images(tx, caller, wanted)

        return await self._control.read(body)

    async def create(self, image: Image) -> Image:
        """Create `image`; without an id it gets one. Its times are set here."""
        now = self._clock.now()
        image_id = image.id or self._ids.uuid()
        image = msgspec.structs.replace(image, id=image_id, created_at=now, updated_at=now)

        async def body(tx: Tx) -> None:
            await insert_image(tx, image)

        await self._control.write(body)
        return image

    async def change(self, caller: Caller, image_id: str, edit: Callable[[Image], Image]) -> Image:
        """Change an image. `edit` returns the new image, or raises; it may be called twice."""
        now = self._clock.now()

        async def body(tx: Tx) -> Image:
            old = await _visible(tx, caller, image_id, lock=True)
            new = edit(old)
            if new == old:
                return old
            new = msgspec.structs.replace(new, updated_at=now)
            await save_image(tx, old, new)
            return new

        return await self._control.write(body)

    async def delete(self, caller: Caller, image_id: str, check: Callable[[Image], None]) -> None:
        """Delete an image. `check` raises if the caller may not. The bytes go once the record is gone for good."""

        async def body(tx: Tx) -> str | None:
            image = await _visible(tx, caller, image_id, lock=True)
            check(image)
            if image.protected:
                raise Refused("image_protected", f"Image {image_id} is protected and cannot be deleted.")
            file = image.file if image.has_bytes else None  # else the upload that writes it removes it
            await remove_image(tx, image_id, file)
            return file

        file = await self._control.write(body)
        if file is not None:
            await self._uploads.remove_unwanted(file)

    async def upload(self, image: Image, chunks: AsyncIterator[bytes], declared_size: int | None = None) -> None:
        await self._uploads.receive(image, chunks, declared_size)

    async def receive_disk(
        self, image_id: str, disk_format: str, chunks: AsyncIterator[bytes], declared_size: int | None = None
    ) -> None:
        """Receive the bytes of an image that an operation made of a server, from the server's host. Once it is active,
        sending them again changes nothing."""

        image = await self.record(image_id)
        if image is None:
            raise deleted_meanwhile(image_id)
        if not image.has_bytes:
            image = msgspec.structs.replace(image, disk_format=disk_format, container_format="bare")
            await self._uploads.receive(image, chunks, declared_size, takes_over=True)

    async def open(self, image: Image) -> BinaryIO:
        return await self._files.open(_file_of(image))

    async def record(self, image_id: str) -> Image | None:
        """Return an image, without a check of its visibility."""

        async def body(tx: Tx) -> Image | None:
            return await fetch_image(tx, image_id)

        return await self._control.read(body, few=True)

    async def file(self, image_id: str) -> ImageFile:
        """Return the file of an active image on this machine."""
        image = await self.record(image_id)
        if image is None:
            raise no_such_image(image_id)
        return ImageFile(self._files.path(_file_of(image)), image.disk_format or "")


async def _visible(tx: Tx, caller: Caller, image_id: str, *, lock: bool = False) -> Image:
    image = await fetch_image(tx, image_id, caller.project_id, lock=lock)
    if image is None or not image.is_visible_to(caller):
        raise no_such_image(image_id)
    return image


def _file_of(image: Image) -> str:
    if not image.has_bytes or image.file is None:
        raise Refused("image_not_active", f"Image {image.id} is {image.status}; it has no data.")
    return image.file
