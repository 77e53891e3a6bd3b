"""An upload: the record is queued, saving while bytes come, active when all of them are on the disk.

The file exists before the record says saving, and is complete before the record says active. So the next start can
clear up after a crash (`clean`): where the record still says saving, the image is queued again. An unfinished file is
removed. A complete one is set aside: if the record is from a backup, the file may be an image that was active since.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from sqlalchemy import select

from kilonova.domain.errors import CommitUnknown, KilonovaError, Refused
from kilonova.records.quotas import UNLIMITED
from kilonova.schema.tables.image import image_files_to_remove, images
from kilonova.services.image.files import PART, UNFINISHED, Draft, Facts, ImageFiles
from kilonova.services.image.image import ACTIVE, HASH_ALGORITHM, QUEUED, SAVING, Image, no_such_image
from kilonova.services.image.inspection import inspect
from kilonova.services.image.marker import marker_in
from kilonova.services.image.quotas import ImageQuotas
from kilonova.services.image.seeds import IDS as SEEDS
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Clock, Ids, Store, Tx

_OF_FILES = Sql(select(images.c.id, images.c.status, images.c.file).where(in_list(images.c.file, "names")))
_TO_REMOVE = Sql(select(image_files_to_remove.c.file))
TAKEN_OVER = "image_taken_over"
LOOK_BYTES = 64 * 1024**2  # between two looks whether the image is still wanted


class Caps(NamedTuple):
    """The most bytes of one image, of the disk that it holds, and of all images of a project by default."""

    size: int = 1024**4
    virtual_size: int = 16 * 1024**4
    project: int = UNLIMITED


CAPS = Caps()


class _Counted:
    """The bytes that one upload counts for while it is under way."""

    def __init__(self, quotas: ImageQuotas, project_id: str | None) -> None:
        self._quotas, self._project_id, self._amount = quotas, project_id, 0

    async def grow(self, amount: int) -> None:
        more = max(0, amount - self._amount)
        self._amount += more
        await self._quotas.admit(self._project_id, more)

    def end(self) -> None:
        self._quotas.forget(self._project_id, self._amount)


class Uploads:
    def __init__(self, control: Store, clock: Clock, ids: Ids, files: ImageFiles, caps: Caps) -> None:
        self._control, self._clock, self._ids = control, clock, ids
        self._files = files
        self._caps, self.quotas = caps, ImageQuotas(control, caps.project)

    async def receive(
        self, image: Image, chunks: AsyncIterator[bytes], declared_size: int | None = None, *, takes_over: bool = False
    ) -> None:
        """`told_size` is what the client says will come; nothing is kept when something else does. `takes_over`: from
        an upload of the same image that nobody has heard the end of."""
        _check_may_start(image, takes_over=takes_over)
        if declared_size is not None and declared_size > self._caps.size:
            raise self._too_large()
        counted = _Counted(self.quotas, image.owner)
        try:
            await counted.grow(declared_size or 0)
            await self._receive(image, chunks, declared_size, counted, takes_over=takes_over)
        finally:
            counted.end()

    async def _receive(
        self,
        image: Image,
        chunks: AsyncIterator[bytes],
        declared_size: int | None,
        counted: _Counted,
        *,
        takes_over: bool,
    ) -> None:
        name = self._ids.uuid()
        draft = await self._files.begin(name)
        try:
            await (self._take_over(image, name) if takes_over else self._start(image, name))
            await self._fill(image, name, draft, chunks, declared_size, counted)
            disk_size = await draft.judge(lambda path: inspect(path, image.disk_format, self._caps.virtual_size))
            marker = await draft.judge(lambda path: marker_in(path, image.disk_format))
            facts = await draft.finish()
        except BaseException:
            await self._give_up(name, draft)
            raise
        try:
            await self._activate(image, name, draft, facts, {"virtual_size": disk_size, "marker": marker})
        finally:
            draft.close()

    async def _start(self, image: Image, name: str) -> None:
        now = self._clock.now()

        async def body(tx: Tx) -> None:
            values = {"status": SAVING, "file": name, "updated_at": now}
            # The format, too: what is inspected at the end is what was declared at the beginning.
            if not await rows.change(tx, images, values, id=image.id, status=QUEUED, disk_format=image.disk_format):
                if await rows.fetch(tx, images, id=image.id) is None:
                    raise no_such_image(image.id)
                raise _not_queued(image.id, "no longer queued")

        await self._control.write(body)

    async def _take_over(self, image: Image, name: str) -> None:
        """Take over an upload. The earlier one finds another file's name in the record and gives up."""
        values = {"status": SAVING, "file": name, "updated_at": self._clock.now()}
        values |= {"disk_format": image.disk_format, "container_format": image.container_format}

        async def body(tx: Tx) -> None:
            row = await rows.fetch(tx, images, lock=True, id=image.id)
            if row is None:
                raise deleted_meanwhile(image.id)
            if row["status"] not in (QUEUED, SAVING):
                raise _not_queued(image.id, row["status"])
            await rows.change(tx, images, values, id=image.id)

        await self._control.write(body)

    async def _fill(
        self,
        image: Image,
        name: str,
        draft: Draft,
        chunks: AsyncIterator[bytes],
        declared_size: int | None,
        counted: _Counted,
    ) -> None:
        looked_at = 0
        async for chunk in chunks:
            await draft.add(chunk)
            if draft.size > self._caps.size:
                raise self._too_large()
            if draft.size - looked_at >= LOOK_BYTES:
                looked_at = draft.size
                await self._check_wanted(image, name)
                await counted.grow(draft.size)
        if declared_size is not None and draft.size != declared_size:
            raise Refused("image_size_differs", f"Expected {declared_size} bytes, received {draft.size}.")

    async def _check_wanted(self, image: Image, name: str) -> None:
        """Deleted meanwhile, at whichever API: the rest need not come."""

        async def body(tx: Tx) -> bool:
            return await rows.fetch(tx, images, status=SAVING, file=name) is not None

        if not await self._control.read(body, few=True):
            raise await self._lost(image.id)

    async def _activate(
        self, image: Image, name: str, draft: Draft, facts: Facts, content: Mapping[str, object]
    ) -> None:
        now = self._clock.now()
        values = {
            "status": ACTIVE,
            "size": facts.size,
            **content,
            "checksum": facts.md5,
            "hash_algorithm": HASH_ALGORITHM,
            "hash_value": facts.sha512,
            "updated_at": now,
        }

        async def body(tx: Tx) -> bool:
            await self.quotas.check(tx, image.owner, facts.size)
            return bool(await rows.change(tx, images, values, status=SAVING, file=name))

        try:
            done = await self._control.write(body)
        except BaseException as error:
            is_active = await self._give_up(name, draft)
            if is_active and isinstance(error, CommitUnknown):
                return
            raise
        if not done:
            await self._give_up(name, draft)
            raise await self._lost(image.id)

    async def _lost(self, image_id: str) -> Refused:
        """Why an upload ends that has not failed."""

        async def body(tx: Tx) -> bool:
            return await rows.fetch(tx, images, id=image_id) is not None

        if await self._control.read(body, few=True):
            return Refused(TAKEN_OVER, f"Image {image_id}: another upload of it has taken over; look again.")
        return deleted_meanwhile(image_id)

    async def _give_up(self, name: str, draft: Draft) -> bool:
        """True: it is active after all, as when the answer to a COMMIT was lost or not waited for.

        The record first: while the file is there, a start after a crash can still put the record right.
        """
        try:
            if await self._back_to_queued(name):
                return True
        except KilonovaError:
            return False
        await draft.abandon()
        return False

    async def _back_to_queued(self, name: str) -> bool:
        """Unless it is active: then True, and nothing is changed."""
        now = self._clock.now()

        async def body(tx: Tx) -> bool:
            values = {"status": QUEUED, "file": None, "updated_at": now}
            await rows.change(tx, images, values, status=SAVING, file=name)
            return await rows.fetch(tx, images, file=name) is not None

        return await self._control.write(body)

    async def clean(self) -> None:
        """Clear up after uploads that a former process did not finish; before the first request.

        A complete file is never removed here (law 15): perhaps the record is missing or old, not the image.
        """
        await self._remove_all_unwanted()
        names = await self._files.names()
        if not names:
            return
        uploads = sorted({name.removesuffix(PART) for name in names})

        async def body(tx: Tx) -> dict[str, tuple[str, str]]:
            return {row["file"]: (row["id"], row["status"]) for row in await tx.all(_OF_FILES, names=uploads)}

        known = await self._control.read(body)
        for name in names:
            image_id, status = known.get(name.removesuffix(PART), ("", ""))
            if await self._files.is_held(name):  # an upload at another API that shares the folder
                continue
            if status == SAVING:
                await self._back_to_queued(name.removesuffix(PART))
            if UNFINISHED.fullmatch(name):
                await self._files.remove(name)
            elif status == SAVING:
                await self._files.set_aside(name, self._clock.now(), f"its image {image_id} is not active")
            elif not image_id and name not in SEEDS:
                await self._files.set_aside(name, self._clock.now())

    async def remove_unwanted(self, file: str) -> None:
        """Remove the file of a deleted image, and then the note that it is to be removed."""
        if not await self._files.remove(file):
            return

        async def body(tx: Tx) -> None:
            await rows.remove(tx, image_files_to_remove, file=file)

        with contextlib.suppress(KilonovaError):  # the next start forgets the note
            await self._control.write(body)

    async def _remove_all_unwanted(self) -> None:
        """Remove the files of what was deleted when a crash came between its record and its file."""

        async def body(tx: Tx) -> list[str]:
            return [row["file"] for row in await tx.all(_TO_REMOVE)]

        for file in await self._control.read(body):
            await self.remove_unwanted(file)

    def _too_large(self) -> Refused:
        return Refused("image_too_large", f"An image may have {self._caps.size} bytes; nothing was stored.")


def _check_may_start(image: Image, *, takes_over: bool) -> None:
    if image.status not in ((QUEUED, SAVING) if takes_over else (QUEUED,)):
        raise _not_queued(image.id, image.status)
    missing = [name for name in ("container_format", "disk_format") if not getattr(image, name)]
    if missing:
        raise Refused("image_without_format", f"Set {' and '.join(missing)} before you upload data.")


def deleted_meanwhile(image_id: str) -> Refused:
    text = f"Image {image_id} could not be found after the upload; it may have been deleted meanwhile."
    return Refused("image_gone", text)


def _not_queued(image_id: str, status: str) -> Refused:
    return Refused("image_not_queued", f"Image {image_id} is {status}; data can only be uploaded to a queued image.")
