"""Attachments as clients ask for them, and the older way: actions on the volume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.domain.volume import VolumeConnection
from kilonova.records.query import ListQuery, find
from kilonova.schema.tables.control import server_mappings
from kilonova.schema.tables.volume import attachments
from kilonova.services.volume import attachment_steps
from kilonova.services.volume.context import VolumeContext
from kilonova.services.volume.listing import ATTACHMENT
from kilonova.services.volume.records import (
    attachment_of,
    change_volume,
    fetch_attachment,
    fetch_volume,
    fetch_volumes,
    insert,
    visible_volume,
)
from kilonova.services.volume.volume import (
    ATTACHED,
    ATTACHING,
    AVAILABLE,
    DETACHING,
    IN_USE,
    MAINTENANCE,
    READ_WRITE,
    Attachment,
    Volume,
    bad_input,
    bad_volume,
    no_such_attachment,
    require_status,
)
from kilonova.store import rows
from kilonova.world import Tx

Both = tuple[Volume, Attachment]


class Attachments:
    def __init__(self, context: VolumeContext) -> None:
        self._context = context

    async def find(self, caller: Caller, attachment_id: str) -> Both:
        async def body(tx: Tx) -> Both:
            return await self._both(tx, caller, attachment_id)

        return await self._context.control.read(body, few=True)

    async def list_(self, viewer: str | None, wanted: ListQuery) -> list[Both]:
        async def body(tx: Tx) -> list[Both]:
            page = [attachment_of(row) for row in await find(tx, ATTACHMENT, viewer, wanted)]
            of = await fetch_volumes(tx, (one.volume_id for one in page))
            return [(of[one.volume_id], one) for one in page]

        return await self._context.control.read(body)

    async def create(
        self,
        caller: Caller,
        volume_id: str,
        *,
        server_id: str | None,
        mode: str = READ_WRITE,
        connector: Mapping[str, Any] | None = None,
    ) -> Both:
        """Reserve the volume; with a connector, connect it."""
        attachment_id, now = self._context.ids.uuid(), self._context.clock.now()

        async def body(tx: Tx) -> Both:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            await _check_server(tx, volume, server_id)
            new = _new(volume, attachment_id, now, server_id=server_id, mode=mode)
            attachment = await attachment_steps.reserve(tx, volume, new)
            if connector:
                volume = await fetch_volume(tx, volume_id)
                attachment = await attachment_steps.connect(tx, volume, attachment, host_of(connector), connector, now)
            return await fetch_volume(tx, volume_id), attachment

        return await self._context.control.write(body)

    async def connect(self, caller: Caller, attachment_id: str, connector: Mapping[str, Any]) -> Both:
        now = self._context.clock.now()

        async def body(tx: Tx) -> Both:
            volume, attachment = await self._both(tx, caller, attachment_id, lock=True)
            _check_changeable(caller, attachment)
            connected = await attachment_steps.connect(tx, volume, attachment, host_of(connector), connector, now)
            return await fetch_volume(tx, volume.id), connected

        volume, connected = await self._context.control.write(body)
        await self._context.close([(volume.backend, volume.id)])
        return volume, connected

    async def complete(self, caller: Caller, attachment_id: str) -> None:
        now = self._context.clock.now()

        async def body(tx: Tx) -> None:
            volume, attachment = await self._both(tx, caller, attachment_id, lock=True)
            _check_changeable(caller, attachment)
            await attachment_steps.complete(tx, volume, attachment, now)

        await self._context.control.write(body)

    async def delete(self, caller: Caller, attachment_id: str) -> list[Attachment]:
        """Delete an attachment, and return the remaining ones of the volume."""

        left: list[Attachment] = []

        async def body(tx: Tx) -> list[tuple[str, str]]:
            volume, attachment = await self._both(tx, caller, attachment_id, lock=True)
            _check_free(caller, [attachment])
            if not (closing := await attachment_steps.cut(tx, volume, [attachment])):
                left[:] = (await attachment_steps.detach(tx, self._context, volume, [attachment])).attachments
            return closing

        await self._context.detach(self._context.control.write, body)
        return left

    async def _both(self, tx: Tx, caller: Caller, attachment_id: str, *, lock: bool = False) -> Both:
        attachment = await fetch_attachment(tx, attachment_id)
        if not attachment.is_visible_to(caller):
            raise no_such_attachment(attachment_id)
        volume = await fetch_volume(tx, attachment.volume_id, lock=lock)
        for one in volume.attachments:  # as it is under the lock
            if one.id == attachment_id:
                return volume, one
        raise no_such_attachment(attachment_id)

    # -- the older way ------------------------------------------------------------------------------------------------

    async def mark(self, caller: Caller, volume_id: str, verb: str) -> None:
        """`reserve`, `unreserve`, `begin_detaching`, `roll_detaching`: only what the volume shows changes."""

        def status(volume: Volume) -> str:
            if verb == "reserve":
                require_status(volume, (AVAILABLE, IN_USE) if volume.multiattach else (AVAILABLE,), verb)
                return ATTACHING
            if verb == "unreserve":
                return attachment_steps.status_by(volume.attachments) if volume.status == ATTACHING else volume.status
            if verb == "roll_detaching":
                return IN_USE if volume.status == DETACHING else volume.status
            if volume.status != IN_USE or not volume.is_attached:
                raise bad_volume(
                    f"Unable to detach volume {volume.id}: it must be in-use and attached, not {volume.status}."
                )
            return DETACHING

        await self._mark(caller, volume_id, status)

    async def _mark(self, caller: Caller, volume_id: str, status: Callable[[Volume], str]) -> None:
        now = self._context.clock.now()

        async def body(tx: Tx) -> None:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            await change_volume(tx, volume, {"status": status(volume), "updated_at": now})

        await self._context.control.write(body)

    async def initialize(self, caller: Caller, volume_id: str, connector: Mapping[str, Any]) -> VolumeConnection:
        """Connect a host that attaches later; the same host gets its existing connection again."""
        attachment_id, now, host = self._context.ids.uuid(), self._context.clock.now(), host_of(connector)

        async def body(tx: Tx) -> Both:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            _refuse_maintenance(volume)
            _check_unused(volume)
            attachment = next((one for one in volume.attachments if one.host == host and not one.is_computes), None)
            if attachment is None:
                attachment = _new(volume, attachment_id, now, status=ATTACHING)
                await insert(tx, attachments, attachment)
            return volume, await attachment_steps.connect(tx, volume, attachment, host, connector, now)

        volume, connected = await self._context.control.write(body)
        await self._context.close([(volume.backend, volume.id)])
        return attachment_steps.connection_of(self._context.seal, volume, connected)

    async def terminate(self, caller: Caller, volume_id: str, connector: Mapping[str, Any] | None) -> None:
        """Remove connections that no attach followed: those of the connector's host, or all."""

        async def body(tx: Tx) -> list[tuple[str, str]]:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            _check_free(caller, volume.attachments)
            host = host_of(connector) if connector else None
            begun = [one for one in volume.attachments if one.status in (ATTACHING, DETACHING)]
            gone = [one for one in begun if host in (None, one.host)]
            if closing := await attachment_steps.cut(tx, volume, gone):
                return closing
            await attachment_steps.detach(tx, self._context, volume, gone)
            return []

        await self._context.detach(self._context.control.write, body)

    async def attach(self, caller: Caller, volume_id: str, request: Mapping[str, Any]) -> None:
        """Attach the volume through the connection made before, if any. `request`: server_id or host, device, mode."""
        now, attachment_id = self._context.clock.now(), self._context.ids.uuid()

        async def body(tx: Tx) -> None:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            _refuse_maintenance(volume)
            _check_unused(volume)
            await _check_server(tx, volume, request.get("server_id"))
            require_status(volume, (AVAILABLE, ATTACHING) + ((IN_USE,) if volume.multiattach else ()), "attach")
            if volume.readonly and request["mode"] == READ_WRITE:
                raise bad_input(f"Invalid attaching mode 'rw' for volume {volume_id}: it is read-only.")
            begun = next((one for one in volume.attachments if one.status == ATTACHING and not one.is_computes), None)
            if begun is None:
                done = {"status": ATTACHED, "attached_at": now, "connected_at": now}
                await insert(tx, attachments, _new(volume, attachment_id, now, **done, **request))
            else:
                given = {name: value for name, value in request.items() if value is not None}
                await rows.change(tx, attachments, {**given, "status": ATTACHED, "attached_at": now}, id=begun.id)
            await change_volume(tx, volume, {"status": IN_USE, "updated_at": now})

        await self._context.control.write(body)

    async def detach(self, caller: Caller, volume_id: str, attachment_id: str | None, *, force: bool = False) -> None:
        """Detach the volume; without an id, its only attachment. `force`: an administrator knows that it is not open
        anywhere."""

        async def body(tx: Tx) -> list[tuple[str, str]]:
            volume = await visible_volume(tx, caller, volume_id, lock=True)
            _refuse_maintenance(volume)
            gone = [one for one in volume.attachments if attachment_id in (None, one.id)]
            if attachment_id and not gone:
                raise bad_input(f"Volume attachment could not be found with filter: attachment_id = {attachment_id}.")
            if len(gone) > 1:
                text = f"Volume {volume_id} is attached {len(gone)} times; name the attachment_id to detach."
                raise bad_volume(text)
            if not force:
                _check_free(caller, gone)
            if not (closing := await attachment_steps.cut(tx, volume, gone)):
                await attachment_steps.detach(tx, self._context, volume, gone)
            return closing

        await self._context.detach(self._context.control.write, body)


def _new(volume: Volume, attachment_id: str, now: float, **more: Any) -> Attachment:
    return Attachment(id=attachment_id, volume_id=volume.id, project_id=volume.project_id, created_at=now, **more)


def host_of(connector: Mapping[str, Any]) -> str:
    host = connector.get("host")
    if not isinstance(host, str) or not host:
        raise bad_input("The connector must name the host that connects.")
    return host


def _refuse_maintenance(volume: Volume) -> None:
    if volume.status == MAINTENANCE:
        raise bad_volume(f"Volume {volume.id} is in maintenance mode; nothing can be attached or detached.")


async def _check_server(tx: Tx, volume: Volume, server_id: str | None) -> None:
    """Refuse a server of another project. An id that no server has is the client's own affair."""
    row = await rows.fetch(tx, server_mappings, server_id=server_id) if server_id else None
    if row is not None and row["project_id"] != volume.project_id:
        raise bad_input(f"Instance {server_id} could not be found in the project of volume {volume.id}.")


def _check_unused(volume: Volume) -> None:
    """Refuse a second connection beside compute's: it would keep compute from moving the server."""
    for attachment in volume.attachments:
        if attachment.is_computes and not volume.multiattach:
            text = f"Volume {volume.id} belongs to instance {attachment.server_id}; attach it using the Compute API"
            raise Refused("attachment_of_compute", text)


def _check_changeable(caller: Caller, attachment: Attachment) -> None:
    """Refuse clients' changes to compute's attachments: a new connect makes a new secret, and the guest loses it."""
    if attachment.is_computes and "service" not in caller.roles:
        text = f"Volume attachment {attachment.id} belongs to instance {attachment.server_id}; use the Compute API"
        raise Refused("attachment_of_compute", text)


def _check_free(caller: Caller, gone: tuple[Attachment, ...] | list[Attachment]) -> None:
    """Refuse to end compute's attachment: a guest may have the volume open, or soon will; only compute may end it."""
    for attachment in gone:
        if attachment.is_computes and "service" not in caller.roles:
            text = f"Detach volume from instance {attachment.server_id} using the Compute API"
            raise Refused("attachment_of_compute", text)
