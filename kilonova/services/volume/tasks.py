"""The tasks on files: create, extend, upload, revert, reimage, delete. Each can be repeated from its start. Its result
is recorded only if the record still asks for this very task."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Failed, KilonovaError, Refused
from kilonova.schema.tables.volume import snapshots, volume_files_to_remove, volumes
from kilonova.services.image.image import QUEUED
from kilonova.services.image.inspection import RAW
from kilonova.services.image.service import Images
from kilonova.services.volume.creating import image_facts
from kilonova.services.volume.files import GIBIBYTE, Backing
from kilonova.services.volume.quotas import GIGABYTES, SNAPSHOTS, VOLUMES, VolumeQuotas
from kilonova.services.volume.records import fetch_volume, remove_snapshot, remove_volume, set_metadata
from kilonova.services.volume.volume import (
    AVAILABLE,
    CREATE,
    DELETE,
    ERROR,
    ERROR_EXTENDING,
    EXTEND,
    IMAGE,
    NO_WORK,
    REIMAGE,
    REVERT,
    UNDER_WAY,
    UPLOAD,
    Snapshot,
    Volume,
    file_of,
)
from kilonova.store import rows
from kilonova.world import Clock, Store, Tx


class VolumeTasks:
    def __init__(
        self, control: Store, clock: Clock, quotas: VolumeQuotas, backing: Backing, images: Images | None
    ) -> None:
        """`images`: None in simulated clouds, which have no bytes; then no image can be read or written."""
        self._control, self._clock, self._quotas = control, clock, quotas
        self._backing, self._images = backing, images

    async def do(self, record: Volume | Snapshot) -> None:
        if isinstance(record, Snapshot):
            await (self._delete_snapshot(record) if record.work == DELETE else self._take_snapshot(record))
            return
        verbs = {
            CREATE: self._create,
            EXTEND: self._extend,
            UPLOAD: self._upload,
            REVERT: self._revert,
            REIMAGE: self._reimage,
            DELETE: self._delete,
        }
        await verbs[record.work](record)

    async def remove_expired(self, now: float) -> None:
        """Remove what was set aside long ago, of images too."""
        await self._backing.remove_expired(now)
        if self._images is not None:
            await self._images.remove_expired()

    async def fail(self, record: Volume | Snapshot, reason: str) -> None:
        """End a piece of work that will not succeed, so that its owner knows and can delete the rest."""
        if isinstance(record, Snapshot):
            values = {"status": ERROR, "reason": f"Its {record.work} failed: {reason}", "work": "", "work_id": ""}

            async def body(tx: Tx) -> int:
                return await rows.change(tx, snapshots, values, id=record.id, work_id=record.work_id)

            await self._control.write(body)
            return
        if record.work == UPLOAD:
            await self._drop_image(record)
        statuses: dict[str, str | None] = {EXTEND: ERROR_EXTENDING, UPLOAD: None, REIMAGE: None}
        unused = int(record.work_value) - record.size if record.work == EXTEND else 0
        changes = {"status": statuses.get(record.work, ERROR), "reason": f"Its {record.work} failed: {reason}"}
        await self._end(record, changes, unused=unused)

    # -- volumes ------------------------------------------------------------------------------------------------------

    async def _create(self, volume: Volume) -> None:
        name = file_of(volume)
        try:
            if volume.snapshot_id:
                await self._backing.make(name, volume.size, copy_of=f"snapshot-{volume.snapshot_id}")
            elif volume.source_id:
                await self._backing.make(name, volume.size, copy_of=f"volume-{volume.source_id}")
            elif volume.image_id and self._images is not None:
                await self._backing.make(name, volume.size, image=await self._images.file(volume.image_id))
            else:
                await self._backing.make(name, volume.size)
        except (Failed, Refused) as why:
            _go_on_later(why)
            await self._end(volume, {"status": ERROR, "reason": f"It could not be created: {why.message}"})
            return
        if not await self._end(volume, {"status": AVAILABLE}):
            await self._backing.remove(name)

    async def _extend(self, volume: Volume) -> None:
        size = int(volume.work_value)
        try:
            await self._backing.grow(file_of(volume), size)
        except Failed as why:
            reason = f"It could not be extended to {size} GB: {why.message}"
            await self._end(volume, {"status": ERROR_EXTENDING, "reason": reason}, unused=size - volume.size)
            return
        await self._end(volume, {"status": None, "size": size})

    async def _upload(self, volume: Volume) -> None:
        """Upload the image. When this is repeated, it may be gone or have all its bytes."""
        try:
            await self._fill_image(volume)
        except (Failed, Refused) as why:
            _go_on_later(why)
            reason = f"It could not be uploaded to image {volume.work_value}: {why.message}"
            await self._drop_image(volume)
            await self._end(volume, {"status": None, "reason": reason})
            return
        await self._end(volume, {"status": None, "reason": ""})

    async def _fill_image(self, volume: Volume) -> None:
        if self._images is None:
            raise Failed("no_images", "this cloud has no image service", final=True)
        image = await self._images.find(_owner(volume), volume.work_value)
        if image.status == QUEUED:
            disk_format = image.disk_format or RAW
            size = volume.size * GIBIBYTE if disk_format == RAW else None
            await self._images.upload(image, self._backing.read(file_of(volume), disk_format), size)

    async def _drop_image(self, volume: Volume) -> None:
        """Delete the image: without bytes it is useless."""
        with contextlib.suppress(Refused):
            if self._images is not None:
                await self._images.delete(_owner(volume), volume.work_value, lambda image: None)

    async def _revert(self, volume: Volume) -> None:
        """Revert to the snapshot. The old content stays until the new one is complete."""
        try:
            await self._backing.make(file_of(volume), volume.size, copy_of=f"snapshot-{volume.work_value}")
        except Failed as why:
            _go_on_later(why)
            reason = f"It could not go back to snapshot {volume.work_value}: {why.message}"
            await self._end(volume, {"status": ERROR, "reason": reason})
            return
        await self._end(volume, {"status": AVAILABLE})

    async def _reimage(self, volume: Volume) -> None:
        """Replace the content by that of an image. If this fails, the volume keeps its old content and shows the
        reason."""
        name, image_id = file_of(volume), volume.work_value
        facts, marker = {"image_id": image_id}, f"image:{image_id}"
        try:
            if self._images is None:
                await self._backing.make(name, volume.size)
            else:
                image = await self._images.find(_owner(volume), image_id)
                facts, marker = image_facts(image), image.content
                await self._backing.make(name, volume.size, image=await self._images.file(image_id))
        except (Failed, Refused) as why:
            _go_on_later(why)
            await self._end(volume, {"status": None, "reason": f"It could not be re-imaged: {why.message}"})
            return
        content = {"image_id": image_id, "marker": marker, "bootable": 1, "reason": ""}
        status = AVAILABLE if volume.previous_status == ERROR else None
        await self._end(volume, {"status": status, **content}, image=facts)

    async def _delete(self, volume: Volume) -> None:
        """Delete the record first, with a note to remove the file: a crash between the two leaves the note."""

        async def body(tx: Tx) -> bool:
            if await rows.fetch(tx, volumes, lock=True, id=volume.id, work_id=volume.work_id) is None:
                return False
            await remove_volume(tx, volume)
            freed = {VOLUMES: -1, GIGABYTES: -volume.size}
            await self._quotas.charge(tx, volume.project_id, volume.type_id, freed)
            return True

        if await self._control.write(body):
            await self.remove_unwanted(volume.backend, file_of(volume))

    async def _end(
        self, volume: Volume, values: Mapping[str, Any], *, unused: int = 0, image: Mapping[str, str] | None = None
    ) -> bool:
        """`status` None: as before. What an administrator said meanwhile stays. `unused`: GB that it did not get.
        `image`: what it holds from now on."""
        now = self._clock.now()

        async def body(tx: Tx) -> bool:
            if await rows.fetch(tx, volumes, lock=True, id=volume.id, work_id=volume.work_id) is None:
                return False
            fresh = await fetch_volume(tx, volume.id)
            changes: dict[str, object] = {**values, **NO_WORK, "previous_status": "", "updated_at": now}
            if fresh.status == UNDER_WAY[volume.work]:
                changes["status"] = values["status"] or fresh.previous_status or AVAILABLE
            else:
                changes["status"] = fresh.status
            if volume.work == REVERT:
                changes |= await self._snapshot_again(tx, volume.work_value)
            await rows.change(tx, volumes, changes, id=volume.id)
            if image is not None:
                await set_metadata(tx, volume.id, IMAGE, image)
            await self._quotas.charge(tx, volume.project_id, volume.type_id, {GIGABYTES: -unused})
            return True

        return await self._control.write(body)

    async def _snapshot_again(self, tx: Tx, snapshot_id: str) -> dict[str, str]:
        """Make the snapshot available again. Return the marker that the volume has then, if there is one."""
        await rows.change(tx, snapshots, {"status": AVAILABLE}, id=snapshot_id)
        row = await rows.fetch(tx, snapshots, id=snapshot_id)
        return {} if row is None else {"marker": row["marker"]}

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def _take_snapshot(self, snapshot: Snapshot) -> None:
        name = file_of(snapshot)
        values: dict[str, object] = {"status": AVAILABLE, "progress": "100%", "reason": ""}
        try:
            await self._backing.make(name, snapshot.size, copy_of=f"volume-{snapshot.volume_id}")
        except Failed as why:
            _go_on_later(why)
            values |= {"status": ERROR, "progress": "0%", "reason": f"It could not be taken: {why.message}"}
        values |= {"work": "", "work_id": "", "updated_at": self._clock.now()}

        async def body(tx: Tx) -> int:
            return await rows.change(tx, snapshots, values, id=snapshot.id, work_id=snapshot.work_id)

        if not await self._control.write(body):
            await self._backing.remove(name)

    async def _delete_snapshot(self, snapshot: Snapshot) -> None:
        async def body(tx: Tx) -> bool:
            if await rows.fetch(tx, snapshots, lock=True, id=snapshot.id, work_id=snapshot.work_id) is None:
                return False
            await remove_snapshot(tx, snapshot)
            freed = {SNAPSHOTS: -1, GIGABYTES: -snapshot.size}
            await self._quotas.charge(tx, snapshot.project_id, snapshot.type_id, freed)
            return True

        if await self._control.write(body):
            await self.remove_unwanted(snapshot.backend, file_of(snapshot))

    async def remove_unwanted(self, backend: str, file: str) -> None:
        """Remove the file of what was deleted, and then the note that it is to be removed."""
        if not await self._backing.remove(file):
            return

        async def body(tx: Tx) -> None:
            await rows.remove(tx, volume_files_to_remove, backend=backend, file=file)

        with contextlib.suppress(KilonovaError):  # the next start forgets the note
            await self._control.write(body)


def _owner(volume: Volume) -> Caller:
    """Return the cloud itself as the caller for the project: the user was checked when the request was accepted."""
    return Caller(user=IdentityRef("", ""), project=IdentityRef(volume.project_id, ""), roles=("admin",))


def _go_on_later(why: Failed | Refused) -> None:
    """Raise an error that is only an interruption, not a failure: the piece is done again."""
    if isinstance(why, Failed) and not why.final:
        raise why
