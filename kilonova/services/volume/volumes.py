"""Volumes: find, list, create, describe, delete."""

from __future__ import annotations

from kilonova.domain.caller import Caller
from kilonova.schema.tables.volume import snapshots
from kilonova.services.volume import listing
from kilonova.services.volume.context import VolumeContext, snapshot_work
from kilonova.services.volume.creating import NewVolume, create_volume
from kilonova.services.volume.owned import OwnedRecords
from kilonova.services.volume.quotas import GIGABYTES
from kilonova.services.volume.records import (
    VOLUME_ROWS,
    change_volume,
    is_being_copied,
    snapshots_of,
    visible_volume,
)
from kilonova.services.volume.volume import (
    DELETE,
    DELETING,
    EXTEND,
    MAY_DELETE,
    MAY_DELETE_SNAPSHOT,
    Snapshot,
    Volume,
    bad_volume,
    require_status,
)
from kilonova.store import rows
from kilonova.world import Tx


class VolumeRecords(OwnedRecords[Volume]):
    records = VOLUME_ROWS

    async def summary(self, project_id: str | None) -> tuple[int, int, dict[str, list[str]]]:
        async def body(tx: Tx) -> tuple[int, int, dict[str, list[str]]]:
            return await listing.summary(tx, project_id)

        return await self._context.control.read(body)

    async def create(self, caller: Caller, new: NewVolume) -> Volume:
        volume_id, work_id = self._context.ids.uuid(), self._context.ids.uuid()

        async def body(tx: Tx) -> Volume:
            return await create_volume(tx, self._context, caller, new, volume_id, work_id)

        volume = await self._context.control.write(body)
        await self._context.wake()
        return volume

    async def delete(self, caller: Caller, volume_id: str, *, force: bool = False, cascade: bool = False) -> None:
        """Delete a volume. `force`: in any state but attached. `cascade`: with its snapshots."""

        async def body(tx: Tx) -> None:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            await accept_delete(tx, self._context, volume, force=force, cascade=cascade)

        await self._context.control.write(body)
        await self._context.wake()


async def accept_delete(
    tx: Tx, context: VolumeContext, volume: Volume, *, force: bool = False, cascade: bool = False
) -> None:
    """Request the deletion of a volume whose row the caller has locked. Raise `Refused` if it is needed."""
    if volume.work == DELETE:
        return
    if not force:
        require_status(volume, MAY_DELETE, "delete")
    if volume.is_attached:
        raise bad_volume(f"Volume {volume.id} is attached; detach it before it is deleted.")
    if await is_being_copied(tx, volume.id):
        raise bad_volume(f"Volume {volume.id} is a source of a volume that is being created; wait for it.")
    there = await snapshots_of(tx, volume.id)
    if there and not cascade:
        raise bad_volume(f"Volume {volume.id} has {len(there)} snapshots; delete them first, or use cascade.")
    for snapshot in there:
        await _check_cascade(tx, volume, snapshot, force)
        await rows.change(tx, snapshots, {"status": DELETING, **snapshot_work(context, DELETE)}, id=snapshot.id)
    if volume.work == EXTEND:  # it will not grow any more
        unused = int(volume.work_value) - volume.size
        await context.quotas.charge(tx, volume.project_id, volume.type_id, {GIGABYTES: -unused})
    await change_volume(tx, volume, {"status": DELETING, **context.work(DELETE)})


async def _check_cascade(tx: Tx, volume: Volume, snapshot: Snapshot, force: bool) -> None:
    if not force and snapshot.status not in (*MAY_DELETE_SNAPSHOT, DELETING):
        raise bad_volume(f"Volume {volume.id} has snapshot {snapshot.id}, which is {snapshot.status}.")
    if await is_being_copied(tx, snapshot.id):
        raise bad_volume(f"Volume {volume.id} has snapshot {snapshot.id}, which is being copied; wait for it.")
