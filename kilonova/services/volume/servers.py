"""The volumes of servers.

Every write comes from another journal, so it passes the server's fence first (law 2): an older write changes nothing. A
repeated one finds its result by the server, turn and ordinal, or, for a volume made for a server, by server and slot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import select

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.domain.volume import Attached, BootSource, VolumeConnection, VolumeState
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.services.image.image import Image
from kilonova.services.image.records import fetch_image
from kilonova.services.volume import attachment_steps
from kilonova.services.volume.changing import begin_reimage
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.creating import NewVolume, create_volume, no_image
from kilonova.services.volume.listing import VOLUME
from kilonova.services.volume.records import (
    attachment_of,
    fetch_attachment,
    fetch_volume,
    fetch_volumes,
)
from kilonova.services.volume.server_snapshots import FenceKey, ServerSnapshots
from kilonova.services.volume.volume import (
    ATTACHING,
    IN_USE,
    READ_WRITE,
    REIMAGE,
    Attachment,
    Volume,
    bad_volume,
    no_such_attachment,
    places,
    require_status,
)
from kilonova.services.volume.volumes import accept_delete
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

# Only those that compute made: a client may have made one in the server's name, and that one is the client's business.
_OF_SERVERS = Sql(
    select(attachments)
    .where(in_list(attachments.c.server_id, "servers"), attachments.c.turn > 0)
    .order_by(attachments.c.created_at)
)


class ServerVolumes(ServerSnapshots):
    async def check(self, caller: Caller, volume_id: str) -> VolumeState:
        """Check that the volume is the caller's and could be attached now, before a request is accepted. Raises
        `Refused`."""

        async def body(tx: Tx) -> VolumeState:
            volume = await fetch_volume(tx, volume_id)
            if volume.project_id != caller.project_id:
                raise VOLUME.missing(volume_id)
            attachment_steps.check_reservable(volume, None, READ_WRITE, by_compute=True)
            return _state(volume)

        return await self._context.control.read(body, few=True)

    async def state(self, volume_id: str) -> VolumeState:
        async def body(tx: Tx) -> VolumeState:
            return _state(await fetch_volume(tx, volume_id))

        return await self._context.control.read(body, few=True)

    async def create_for_boot(
        self,
        fence: FenceKey,
        *,
        slot: int,
        project_id: str,
        user_id: str,
        size: int | None,
        source: BootSource,
        volume_type: str = "",
        name: str = "",
        zone: str = "",
        delete_on_termination: bool = False,
    ) -> str:
        volume_id, work_id = self._context.ids.uuid(), self._context.ids.uuid()
        caller = Caller(user=IdentityRef(user_id, user_id), project=IdentityRef(project_id, project_id))

        async def body(tx: Tx) -> str:
            there = await rows.fetch(tx, volumes, created_for=fence[0], created_slot=slot)
            if there is not None:
                return str(there["id"])
            image = await _image(tx, caller, source.image_id) if source.image_id else None
            new = NewVolume(
                size=size,
                name=name,
                type=volume_type,
                zone=zone,
                image=image,
                snapshot_id=source.snapshot_id,
                source_id=source.volume_id,
                created_for=fence[0],
                created_slot=slot,
                goes_with_server=delete_on_termination,
            )
            return (await create_volume(tx, self._context, caller, new, volume_id, work_id)).id

        boot_volume_id = await self._fenced(fence, body)
        await self._context.wake()
        return boot_volume_id

    async def hold(self, tx: Tx, fence: FenceKey, *, project_id: str, devices: Mapping[str, str]) -> None:
        await pass_fence_in_control(tx, *fence)
        for volume_id in sorted(devices):  # the same lock order as releasing several volumes
            await self._reserve(tx, fence, volume_id, project_id=project_id, device=devices[volume_id] or None)

    async def reserve(
        self,
        fence: FenceKey,
        *,
        project_id: str,
        volume_id: str,
        mode: str = READ_WRITE,
        device: str = "",
        delete_on_termination: bool = False,
    ) -> str:
        async def body(tx: Tx) -> str:
            return await self._reserve(
                tx,
                fence,
                volume_id,
                project_id=project_id,
                mode=mode,
                device=device or None,
                goes_with_server=delete_on_termination,
            )

        return await self._fenced(fence, body)

    async def _reserve(
        self,
        tx: Tx,
        fence: FenceKey,
        volume_id: str,
        *,
        project_id: str,
        device: str | None,
        mode: str = READ_WRITE,
        goes_with_server: bool = False,
    ) -> str:
        server_id, turn, ordinal = fence
        volume = await fetch_volume(tx, volume_id, lock=True)
        if volume.project_id != project_id:
            raise VOLUME.missing(volume_id)
        there = await rows.fetch(tx, attachments, volume_id=volume_id, server_id=server_id, turn=turn, ordinal=ordinal)
        if there is not None:
            return str(there["id"])
        new = Attachment(
            id=self._context.ids.uuid(),
            volume_id=volume_id,
            project_id=project_id,
            server_id=server_id,
            turn=turn,
            ordinal=ordinal,
            mode=mode,
            device=device,
            goes_with_server=goes_with_server,
            created_at=self._context.clock.now(),
        )
        return (await attachment_steps.reserve(tx, volume, new)).id

    async def connect(self, fence: FenceKey, *, attachment_id: str, host: str) -> VolumeConnection:
        now = self._context.clock.now()

        async def body(tx: Tx) -> tuple[Volume, Attachment, list[tuple[str, str]]]:
            volume, attachment = await _held(tx, fence[0], attachment_id)
            if attachment.host == host and attachment.is_connected:
                return volume, attachment, []
            connected = await attachment_steps.connect(tx, volume, attachment, host, {"host": host}, now)
            return volume, connected, places(volume, [attachment])

        volume, attachment, closing = await self._fenced(fence, body)
        await self._context.close(closing)
        return attachment_steps.connection_of(self._context.seal, volume, attachment)

    async def reimage(self, fence: FenceKey, *, attachment_id: str, image_id: str) -> None:
        work = self._context.work(REIMAGE, image_id)

        async def body(tx: Tx) -> None:
            volume, attachment = await _held(tx, fence[0], attachment_id)
            others = [one for one in volume.attachments if one.id != attachment.id]
            if others:
                raise bad_volume(f"Volume {volume.id} has {len(others)} other attachments; it cannot be re-imaged.")
            if volume.work == REIMAGE and volume.work_value == image_id:
                return  # by an earlier try
            require_status(volume, (IN_USE, ATTACHING), "be re-imaged")
            image = await fetch_image(tx, image_id, volume.project_id) or Image(id=image_id, status="deleted")
            await begin_reimage(tx, volume, image, work)

        await self._fenced(fence, body)
        await self._context.wake()

    async def complete(self, fence: FenceKey, *, attachment_id: str) -> None:
        now = self._context.clock.now()

        async def body(tx: Tx) -> None:
            await attachment_steps.complete(tx, *await _held(tx, fence[0], attachment_id), now)

        await self._fenced(fence, body)

    async def disconnect(self, fence: FenceKey, *, attachment_id: str) -> None:
        async def body(tx: Tx) -> list[tuple[str, str]]:
            gone, closing = await self._release(tx, fence, attachment_id)
            if gone is None or closing:
                return closing
            with contextlib.suppress(Refused):  # it is broken by now: nothing to hold
                await self._reserve(
                    tx, fence, gone.volume_id, project_id=gone.project_id, device=gone.device, mode=gone.mode
                )
            return []

        await self._context.detach(partial(self._fenced, fence), body)

    async def release(self, fence: FenceKey, *, attachment_id: str) -> None:
        async def body(tx: Tx) -> list[tuple[str, str]]:
            return (await self._release(tx, fence, attachment_id))[1]

        await self._context.detach(partial(self._fenced, fence), body)

    async def _release(
        self, tx: Tx, fence: FenceKey, attachment_id: str
    ) -> tuple[Attachment | None, list[tuple[str, str]]]:
        """Return the released attachment, and where its connection must be dropped before it goes."""
        row = await _own_row(tx, fence[0], attachment_id)
        if row is None:
            return None, []
        volume = await fetch_volume(tx, row["volume_id"], lock=True)
        gone = [one for one in volume.attachments if one.id == attachment_id]
        if not (closing := await attachment_steps.cut(tx, volume, gone)):
            await attachment_steps.detach(tx, self._context, volume, gone)
        return next(iter(gone), None), closing

    async def release_all(self, fence: FenceKey, *, delete: Sequence[str] = (), slots: Sequence[int] = ()) -> None:
        server_id = fence[0]

        async def body(tx: Tx) -> list[tuple[str, str]]:
            there = await tx.all(_OF_SERVERS, servers=[server_id])
            created = await rows.fetch_all(tx, volumes, created_for=server_id)
            going = {row["id"] for row in created if row["goes_with_server"] or row["created_slot"] in slots} | {
                *delete
            }
            going |= {row["volume_id"] for row in there if row["goes_with_server"]}
            ids = sorted({row["volume_id"] for row in there} | going)
            # Lock all volumes before the quota: extending a volume takes the two in the same order.
            held = [volume_id for volume_id in ids if await rows.fetch(tx, volumes, lock=True, id=volume_id)]
            attached = [(volume, _of_compute(volume, server_id)) for volume in (await fetch_volumes(tx, held)).values()]
            if closing := [
                location for volume, gone in attached for location in await attachment_steps.cut(tx, volume, gone)
            ]:
                return closing
            for volume, gone in attached:
                left = await attachment_steps.detach(tx, self._context, volume, gone)
                if volume.id in going:
                    await _delete(tx, self._context, left)
            return []

        await self._context.detach(partial(self._fenced, fence), body)
        await self._context.wake()

    async def set_delete_on_termination(self, fence: FenceKey, *, attachment_id: str, delete: bool) -> None:
        values = {"goes_with_server": int(delete)}

        async def body(tx: Tx) -> None:
            volume, attachment = await _held(tx, fence[0], attachment_id)
            await rows.change(tx, attachments, values, id=attachment.id)
            if volume.created_for == fence[0]:
                await rows.change(tx, volumes, values, id=volume.id)

        await self._fenced(fence, body)

    async def attached(self, server_ids: Sequence[str]) -> dict[str, list[Attached]]:
        async def body(tx: Tx) -> dict[str, list[Attached]]:
            all_attachments = [attachment_of(row) for row in await tx.all(_OF_SERVERS, servers=list(server_ids))]
            of = await fetch_volumes(tx, (one.volume_id for one in all_attachments))
            by_server: dict[str, list[Attached]] = {}
            for one in all_attachments:
                by_server.setdefault(one.server_id or "", []).append(_attached(of[one.volume_id], one))
            return by_server

        return await self._context.control.read(body) if server_ids else {}

    async def connection(self, attachment_id: str) -> VolumeConnection:
        async def body(tx: Tx) -> VolumeConnection:
            attachment = await fetch_attachment(tx, attachment_id)
            volume = await fetch_volume(tx, attachment.volume_id)
            return attachment_steps.connection_of(self._context.seal, volume, attachment)

        return await self._context.control.read(body, few=True)


def _of_compute(volume: Volume, server_id: str) -> list[Attachment]:
    return [one for one in volume.attachments if one.server_id == server_id and one.is_computes]


async def _image(tx: Tx, caller: Caller, image_id: str) -> Image:
    image = await fetch_image(tx, image_id, caller.project_id)
    if image is None or not image.is_visible_to(caller):
        raise no_image(image_id)
    return image


async def _held(tx: Tx, server_id: str, attachment_id: str) -> tuple[Volume, Attachment]:
    """Return the attachment and its volume, whose row is locked."""
    row = await _own_row(tx, server_id, attachment_id)
    if row is None:
        raise no_such_attachment(attachment_id)
    volume = await fetch_volume(tx, row["volume_id"], lock=True)
    return volume, await fetch_attachment(tx, attachment_id)


async def _own_row(tx: Tx, server_id: str, attachment_id: str) -> Row | None:
    """Return the row of an attachment that compute made for the server."""
    row = await rows.fetch(tx, attachments, id=attachment_id, server_id=server_id)
    return row if row is not None and row["turn"] > 0 else None


async def _delete(tx: Tx, context: VolumeContext, volume: Volume) -> None:
    """Delete a volume with the server it was made for; it stays if it has snapshots or is used elsewhere."""
    try:
        await accept_delete(tx, context, volume, force=True)
    except Refused as why:
        if why.code != "invalid_volume":
            raise


def _state(volume: Volume) -> VolumeState:
    return VolumeState(
        id=volume.id,
        status=volume.status,
        size=volume.size,
        reason=volume.reason,
        bootable=volume.bootable,
        multiattach=volume.multiattach,
        type=volume.type_name,
        zone=volume.zone,
        image_metadata=volume.image_metadata,
        work=volume.work,
    )


def _attached(volume: Volume, one: Attachment) -> Attached:
    return Attached(
        id=one.id,
        volume_id=one.volume_id,
        server_id=one.server_id or "",
        status=one.status,
        mode=one.mode,
        host=one.host or "",
        device=one.device or "",
        created_here=volume.created_for is not None and volume.created_for == one.server_id,
        delete_on_termination=one.goes_with_server,
    )
