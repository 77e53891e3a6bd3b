"""The snapshots of a server's volumes, for an image of the server.

Every write comes from another journal, so it passes the server's fence first (law 2); a repeated one finds the snapshot
by the id that its operation gave it.
"""

from __future__ import annotations

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.volume import SnapshotState
from kilonova.schema.tables.volume import attachments, snapshots
from kilonova.services.volume.context import VolumeContext, snapshot_work
from kilonova.services.volume.quotas import GIGABYTES, SNAPSHOTS
from kilonova.services.volume.records import change_snapshot, fetch_snapshot, fetch_volume, insert
from kilonova.services.volume.snapshots import new_snapshot
from kilonova.services.volume.volume import DELETE, DELETING, IN_USE, no_such_attachment, require_status
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.world import Body, T, Tx

FenceKey = tuple[str, int, int]  # server, turn, ordinal


class ServerSnapshots:
    def __init__(self, context: VolumeContext) -> None:
        self._context = context

    async def snapshot(self, fence: FenceKey, *, snapshot_id: str, attachment_id: str, name: str, user_id: str) -> None:
        work_id, now = self._context.ids.uuid(), self._context.clock.now()

        async def body(tx: Tx) -> None:
            if await rows.fetch(tx, snapshots, id=snapshot_id) is not None:
                return
            row = await rows.fetch(tx, attachments, id=attachment_id, server_id=fence[0])
            if row is None:
                raise no_such_attachment(attachment_id)
            volume = await fetch_volume(tx, row["volume_id"], lock=True)
            require_status(volume, (IN_USE,), "be snapshotted")
            owner = {"project_id": volume.project_id, "user_id": user_id}
            new = new_snapshot(volume, **owner, id=snapshot_id, work_id=work_id, created_at=now, name=name)
            await insert(tx, snapshots, new)
            charged = {SNAPSHOTS: 1, GIGABYTES: volume.size}
            await self._context.quotas.charge(tx, volume.project_id, volume.type_id, charged)

        await self._fenced(fence, body)
        await self._context.wake()

    async def snapshot_state(self, snapshot_id: str) -> SnapshotState | None:
        async def body(tx: Tx) -> SnapshotState | None:
            row = await rows.fetch(tx, snapshots, id=snapshot_id)
            if row is None:
                return None
            return SnapshotState(id=row["id"], status=row["status"], size=row["size"], reason=row["reason"])

        return await self._context.control.read(body, few=True)

    async def drop_snapshot(self, fence: FenceKey, *, snapshot_id: str) -> None:
        work = snapshot_work(self._context, DELETE)

        async def body(tx: Tx) -> None:
            if await rows.fetch(tx, snapshots, lock=True, id=snapshot_id) is None:
                return
            snapshot = await fetch_snapshot(tx, snapshot_id)
            if snapshot.work != DELETE:
                await change_snapshot(tx, snapshot, {**work, "status": DELETING})

        await self._fenced(fence, body)
        await self._context.wake()

    async def _fenced(self, fence: FenceKey, body: Body[T]) -> T:
        async def whole(tx: Tx) -> T:
            await pass_fence_in_control(tx, *fence)
            return await body(tx)

        try:
            return await self._context.control.write(whole)
        except Refused as why:
            raise Failed(why.code, why.message, final=True) from why
