"""The changes of a volume besides creating and attaching it: extend, retype, upload as an image, revert to a snapshot,
and those of administrators."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kilonova.domain.caller import Caller
from kilonova.schema.tables.volume import attachments, snapshots
from kilonova.services.image.image import Image
from kilonova.services.image.records import insert_image
from kilonova.services.volume import attachment_steps
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.creating import check_image
from kilonova.services.volume.quotas import GIGABYTES, VOLUMES
from kilonova.services.volume.records import change_volume, snapshots_of, visible_snapshot, visible_volume
from kilonova.services.volume.volume import (
    ATTACHED,
    AVAILABLE,
    DETACHED,
    DOWNLOADING,
    ERROR,
    EXTEND,
    EXTENDING,
    IN_USE,
    REIMAGE,
    RESERVED,
    RESTORING,
    REVERT,
    REVERTING,
    UPLOAD,
    UPLOADING,
    Snapshot,
    Volume,
    bad_input,
    bad_snapshot,
    bad_volume,
    require_status,
)
from kilonova.store import rows
from kilonova.world import Body, Tx


async def begin_reimage(tx: Tx, volume: Volume, image: Image, work: Mapping[str, object]) -> Volume:
    """Begin a reimage; the volume's row is locked. The old content stays until the new one is complete."""
    check_image(image, volume.size)
    return await change_volume(
        tx, volume, {"status": DOWNLOADING, "previous_status": volume.status, "reason": "", **work}
    )


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Empty: nothing was said of it."""

    status: str = ""
    attach_status: str = ""
    migration_status: str = ""


class VolumeChanges:
    def __init__(self, context: VolumeContext) -> None:
        self._context = context

    async def extend(self, caller: Caller, volume_id: str, size: int, *, attached: bool = False) -> Volume:
        """`attached`: the caller may do so while a server has it."""
        work = self._context.work(EXTEND, str(size))

        async def body(tx: Tx) -> Volume:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            if size <= volume.size:
                text = f"New size for extend must be greater than current size. (current: {volume.size}, extended: "
                raise bad_input(f"{text}{size}).")
            require_status(volume, (AVAILABLE, IN_USE) if attached else (AVAILABLE,), "extend")
            await self._context.quotas.check_size(tx, volume.project_id, size)
            await self._context.quotas.charge(tx, volume.project_id, volume.type_id, {GIGABYTES: size - volume.size})
            return await self._begin(tx, volume, EXTENDING, work)

        return await self._accepted(body)

    async def upload(
        self, caller: Caller, volume_id: str, image: Image, *, force: bool = False
    ) -> tuple[Volume, Image]:
        """Create an image record and request the upload of the volume into it. `force`: also while the volume is
        attached."""
        now = self._context.clock.now()
        image = msgspec.structs.replace(image, id=self._context.ids.uuid(), created_at=now, updated_at=now)
        work = self._context.work(UPLOAD, image.id)

        async def body(tx: Tx) -> Volume:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            require_status(volume, (AVAILABLE, IN_USE) if force else (AVAILABLE,), "upload")
            await insert_image(tx, image)
            return await self._begin(tx, volume, UPLOADING, work)

        return await self._accepted(body), image

    async def revert(self, caller: Caller, volume_id: str, snapshot_id: str) -> Volume:
        """Revert the volume to its latest snapshot."""
        work = self._context.work(REVERT, snapshot_id)

        async def body(tx: Tx) -> Volume:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            snapshot = await self._latest(tx, volume, snapshot_id)
            require_status(volume, (AVAILABLE,), "revert")
            snapshot = await visible_snapshot(tx, caller, snapshot.id, lock=True)
            if snapshot.status != AVAILABLE:
                raise bad_snapshot(f"Snapshot {snapshot.id} status must be available to revert, not {snapshot.status}.")
            await rows.change(tx, snapshots, {"status": RESTORING}, id=snapshot.id)
            return await self._begin(tx, volume, REVERTING, work)

        return await self._accepted(body)

    async def _latest(self, tx: Tx, volume: Volume, snapshot_id: str) -> Snapshot:
        by_age = sorted(await snapshots_of(tx, volume.id), key=lambda one: (one.created_at, one.id))
        if not by_age:
            raise bad_input(f"Volume {volume.id} doesn't have any snapshots.")
        if by_age[-1].id != snapshot_id:
            raise bad_input(f"Snapshot {snapshot_id[:80]} is not the latest one of volume {volume.id}.")
        if by_age[-1].size != volume.size:
            raise bad_input(f"Snapshot {snapshot_id} has {by_age[-1].size} GB and the volume {volume.size}.")
        return by_age[-1]

    async def reimage(self, caller: Caller, volume_id: str, image: Image, *, reserved: bool = False) -> Volume:
        """Replace its content by that of an image. `reserved`: also while it is reserved."""
        work = self._context.work(REIMAGE, image.id)

        async def body(tx: Tx) -> Volume:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            require_status(volume, (AVAILABLE, ERROR, RESERVED) if reserved else (AVAILABLE, ERROR), "be re-imaged")
            return await begin_reimage(tx, volume, image, work)

        return await self._accepted(body)

    async def retype(self, caller: Caller, volume_id: str, name_or_id: str) -> Volume:
        """Change the type. Every type is on the same kind of storage here, so only the record changes."""
        now = self._context.clock.now()

        async def body(tx: Tx) -> Volume:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            new = await self._context.types.visible(tx, caller, name_or_id)
            require_status(volume, (AVAILABLE, IN_USE), "retype")
            if new.id == volume.type_id:
                raise bad_volume(f"Volume {volume.id} has the type {new.name} already.")
            if new.is_multiattach != volume.multiattach and volume.status != AVAILABLE:
                raise bad_input(f"Multiattach changes only while a volume is available, not {volume.status}.")
            charge = self._context.quotas.charge
            await charge(tx, volume.project_id, volume.type_id, {VOLUMES: -1, GIGABYTES: -volume.size})
            await charge(tx, volume.project_id, new.id, {VOLUMES: 1, GIGABYTES: volume.size})
            values = {"type_id": new.id, "multiattach": int(new.is_multiattach), "updated_at": now}
            return await change_volume(tx, volume, values)

        return await self._context.control.write(body)

    async def set_bootable(self, caller: Caller, volume_id: str, bootable: bool) -> None:
        await self._set(caller, volume_id, {"bootable": int(bootable)})

    async def set_readonly(self, caller: Caller, volume_id: str, readonly: bool) -> None:
        await self._set(caller, volume_id, {"readonly": int(readonly)}, (AVAILABLE,))

    async def _set(
        self, caller: Caller, volume_id: str, values: Mapping[str, object], allowed: tuple[str, ...] = ()
    ) -> None:
        changes = {**values, "updated_at": self._context.clock.now()}

        async def body(tx: Tx) -> None:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            if allowed:
                require_status(volume, allowed, "update readonly flag")
            await change_volume(tx, volume, changes)

        await self._context.control.write(body)

    async def reset(self, caller: Caller, volume_id: str, said: Said) -> None:
        """Apply an administrator's declaration. It changes what is shown; running work goes on."""
        now = self._context.clock.now()

        async def body(tx: Tx) -> list[tuple[str, str]]:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            if not volume.attachments and (said.status == IN_USE or said.attach_status == ATTACHED):
                raise bad_input(f"Cannot reset-state to in-use: volume {volume_id} does not have any attachments.")
            if said.attach_status == DETACHED and (
                closing := await attachment_steps.cut(tx, volume, volume.attachments)
            ):
                return closing
            values: dict[str, object] = {"updated_at": now}
            if said.status:
                values |= {"status": said.status, "reason": ""}
            if said.migration_status:
                migration_status = said.migration_status
                values["migration_status"] = None if migration_status == "none" else migration_status
            await change_volume(tx, volume, values)
            if said.attach_status == DETACHED:
                await rows.remove(tx, attachments, volume_id=volume_id)
            return []

        await self._context.detach(self._context.control.write, body)

    async def _begin(self, tx: Tx, volume: Volume, status: str, work: Mapping[str, object]) -> Volume:
        return await change_volume(tx, volume, {"status": status, "previous_status": volume.status, **work})

    async def _accepted(self, body: Body[Volume]) -> Volume:
        changed = await self._context.control.write(body)
        await self._context.wake()
        return changed
