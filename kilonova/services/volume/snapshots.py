"""Snapshots: a copy of a volume as it was."""

from __future__ import annotations

from typing import Any

from kilonova.domain.caller import Caller
from kilonova.schema.tables.volume import snapshots
from kilonova.services.volume.context import snapshot_work
from kilonova.services.volume.owned import OwnedRecords
from kilonova.services.volume.quotas import GIGABYTES, SNAPSHOTS
from kilonova.services.volume.records import (
    SNAPSHOT_ROWS,
    change_snapshot,
    fetch_snapshot,
    insert,
    is_being_copied,
    visible_snapshot,
    visible_volume,
)
from kilonova.services.volume.volume import (
    AVAILABLE,
    CREATE,
    DELETE,
    DELETING,
    IN_USE,
    MAY_DELETE_SNAPSHOT,
    Snapshot,
    Volume,
    bad_snapshot,
    require_status,
)
from kilonova.world import Tx


class Snapshots(OwnedRecords[Snapshot]):
    records = SNAPSHOT_ROWS

    async def create(
        self, caller: Caller, volume_id: str, *, in_use: bool = False, metadata: dict[str, str], **attributes: Any
    ) -> Snapshot:
        """Create a snapshot. `in_use`: also of a volume that is attached. `attributes`: a name, a description."""
        snapshot_id, work_id, now = self._context.ids.uuid(), self._context.ids.uuid(), self._context.clock.now()

        async def body(tx: Tx) -> Snapshot:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            require_status(volume, (AVAILABLE, IN_USE) if in_use else (AVAILABLE,), "be snapshotted")
            owner = {"project_id": caller.project_id, "user_id": caller.user_id}
            new = new_snapshot(
                volume, **owner, id=snapshot_id, work_id=work_id, created_at=now, metadata=metadata, **attributes
            )
            await insert(tx, snapshots, new)
            charged = {SNAPSHOTS: 1, GIGABYTES: volume.size}
            await self._context.quotas.charge(tx, new.project_id, volume.type_id, charged)
            return await fetch_snapshot(tx, snapshot_id)

        snapshot = await self._context.control.write(body)
        await self._context.wake()
        return snapshot

    async def delete(self, caller: Caller, snapshot_id: str, *, force: bool = False) -> None:
        work = snapshot_work(self._context, DELETE)

        async def body(tx: Tx) -> None:
            snapshot = await visible_snapshot(tx, caller, snapshot_id, lock=True)
            if snapshot.work == DELETE:
                return
            if not force and snapshot.status not in MAY_DELETE_SNAPSHOT:
                allowed = " or ".join(MAY_DELETE_SNAPSHOT)
                raise bad_snapshot(f"Snapshot {snapshot_id} status must be {allowed}, not {snapshot.status}.")
            if await is_being_copied(tx, snapshot_id):
                raise bad_snapshot(f"Snapshot {snapshot_id} is a source of a volume that is being created.")
            await change_snapshot(tx, snapshot, {**work, "status": DELETING})

        await self._context.control.write(body)
        await self._context.wake()


def new_snapshot(volume: Volume, **attributes: Any) -> Snapshot:
    """Return a new snapshot with the volume's current marker. `attributes`: its id, its owner, its name."""
    return Snapshot(
        volume_id=volume.id,
        size=volume.size,
        type_id=volume.type_id,
        backend=volume.backend,
        work=CREATE,
        marker=volume.marker,
        **attributes,
    )
