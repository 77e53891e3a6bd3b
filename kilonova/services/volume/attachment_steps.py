"""The steps of attaching a volume, inside a transaction that has locked its row: reserved, connected, complete,
detached.

Both client_attachments.py (clients) and servers.py (compute) use them; the rules are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.volume import ConnectionData, VolumeConnection
from kilonova.schema.tables.volume import attachments
from kilonova.services.volume.backends import pool_of
from kilonova.services.volume.context import KeyDeriver, VolumeContext
from kilonova.services.volume.records import change_volume, fetch_attachment, fetch_volume, insert
from kilonova.services.volume.volume import (
    ATTACHED,
    ATTACHING,
    AVAILABLE,
    DETACHING,
    DOWNLOADING,
    EXTENDING,
    IN_USE,
    READ_ONLY,
    READ_WRITE,
    RESERVED,
    UPLOADING,
    Attachment,
    Volume,
    bad_volume,
    places,
)
from kilonova.store import rows
from kilonova.world import Tx

_HELD = (RESERVED, ATTACHING, IN_USE, DETACHING)


async def reserve(tx: Tx, volume: Volume, new: Attachment) -> Attachment:
    """Insert the attachment `new` and set the status of the volume."""
    check_reservable(volume, new.server_id, new.mode, by_compute=new.is_computes)
    await insert(tx, attachments, new)
    await change_volume(tx, volume, {"status": RESERVED, "updated_at": new.created_at})
    return new


def check_reservable(volume: Volume, server_id: str | None, mode: str, *, by_compute: bool) -> None:
    """Refuse a volume that cannot be reserved. A server that has it may reserve it once more, for another host.

    Compute and clients do not share a reservation: neither knows when the other has finished with the volume.
    """
    if "error" in volume.status:
        raise bad_volume(
            f"Volume {volume.id} is {volume.status} and cannot be attached: {volume.reason or 'reset it'}."
        )
    if mode != READ_ONLY and volume.readonly:
        raise bad_volume(f"Volume {volume.id} is read-only; it cannot be attached with mode {mode}.")
    allowed = (AVAILABLE, RESERVED, ATTACHING, IN_USE) if volume.multiattach else (AVAILABLE,)
    has_it = server_id is not None and any(
        one.server_id == server_id and one.is_computes == by_compute for one in volume.attachments
    )
    if volume.status not in allowed and not (has_it and volume.status in (IN_USE, RESERVED)):
        raise bad_volume(
            f"Volume {volume.id} status must be {' or '.join(allowed)} to reserve, but the current status is "
            f"{volume.status}."
        )


async def connect(
    tx: Tx, volume: Volume, attachment: Attachment, host: str, connector: Mapping[str, Any], now: float
) -> Attachment:
    """Connect an attachment. Each connect, also from another host, makes a new secret and voids the old one.

    A volume without multiattach is connected once. A volume that is in error by now may be connected again to its
    server: a move that is undone, or an evacuation, must not fail because of it (law 17).
    """
    if "error" in volume.status and not (attachment.is_computes and attachment.connected_at is not None):
        raise Refused("attachment_conflict", f"Volume {volume.id} is {volume.status}; its attachments cannot change.")
    for other in volume.attachments:
        if other.id != attachment.id and other.is_connected and not volume.multiattach:
            text = f"Volume {volume.id} is connected to {other.host} by attachment {other.id}; delete that one first."
            raise Refused("attachment_conflict", text)
    values = {
        "host": host,
        "device": connector.get("mountpoint") or attachment.device,
        "connector": msgspec.json.encode(connector).decode(),
        "mode": _mode(volume, connector.get("mode") or attachment.mode),
        "connected_at": now if attachment.connected_at is None else max(now, attachment.connected_at + 1e-3),
        "status": attachment.status if attachment.status == ATTACHED else ATTACHING,
    }
    await rows.change(tx, attachments, values, id=attachment.id)
    if volume.status == RESERVED:
        await change_volume(tx, volume, {"status": ATTACHING, "updated_at": now})
    return await fetch_attachment(tx, attachment.id)


async def complete(tx: Tx, volume: Volume, attachment: Attachment, now: float) -> None:
    if not attachment.is_connected:
        text = f"Volume attachment {attachment.id} has no connection; update it with a connector first."
        raise Refused("attachment_unconnected", text)
    if attachment.status == ATTACHED:
        return
    await rows.change(tx, attachments, {"status": ATTACHED, "attached_at": now}, id=attachment.id)
    if "error" not in volume.status:
        await change_volume(tx, volume, {"status": IN_USE, "updated_at": now})


async def cut(tx: Tx, volume: Volume, gone: Sequence[Attachment]) -> list[tuple[str, str]]:
    """Void the connections of attachments that are going to be removed, and return the connections to drop; empty if
    none.

    Only after they are dropped, `VolumeContext.detach` removes the attachments and frees the volume.
    """
    closing = places(volume, gone)
    for attachment in gone:
        if attachment.is_connected:
            await rows.change(tx, attachments, {"status": DETACHING}, id=attachment.id)
    if closing and volume.status in _HELD:
        left = [one for one in volume.attachments if one.id not in {gone_one.id for gone_one in gone}]
        await change_volume(tx, volume, {"status": status_by(left) if left else DETACHING})
    return closing


async def detach(tx: Tx, context: VolumeContext, volume: Volume, gone: Sequence[Attachment]) -> Volume:
    """Remove the attachments with their secrets. The volume's status follows from those that remain."""
    for attachment in gone:
        await rows.remove(tx, attachments, id=attachment.id)
    left = await fetch_volume(tx, volume.id)
    values: dict[str, object] = {"updated_at": context.clock.now()}
    if volume.status in _HELD or (gone and volume.status.startswith("error")):
        values["status"] = status_by(left.attachments)
    elif volume.status in (DOWNLOADING, EXTENDING, UPLOADING):
        values["previous_status"] = status_by(left.attachments)
    return await change_volume(tx, left, values)


def status_by(there: Sequence[Attachment]) -> str:
    states = {attachment.status for attachment in there}
    if ATTACHED in states:
        return IN_USE
    return next((status for status in (ATTACHING, RESERVED, DETACHING) if status in states), AVAILABLE)


def connection_of(
    seal: KeyDeriver, volume: Volume, attachment: Attachment, *, with_secret: bool = True
) -> VolumeConnection:
    """Return the data that a host needs to reach the volume; empty before it is connected."""
    if not attachment.is_connected:
        return {}
    data: ConnectionData = {
        "volume_id": volume.id,
        "attachment_id": attachment.id,
        "pool": pool_of(volume.backend),
        "backend": volume.backend,
        "multiattach": volume.multiattach,
        "host": attachment.host,
        "size": volume.size,
        "access_mode": attachment.mode,
        "encrypted": False,
        "qos_specs": None,
        "auth_username": attachment.id,
    }
    if with_secret:
        data["auth_password"] = secret_of(seal, attachment)
    return {"driver_volume_type": "kilonova", "data": data}


def secret_of(seal: KeyDeriver, attachment: Attachment) -> str:
    """Derive the secret of an attachment from the key of the cloud. It is stored nowhere, and valid while the
    attachment is connected."""
    return seal.derive(f"volume attachment {attachment.id} {attachment.connected_at!r}").hex()


def connection_closed(attachment_id: str) -> Refused:
    text = f"Attachment {attachment_id[:80]} is not connected with this secret; connect it again."
    return Refused("volume_connection_closed", text)


def _mode(volume: Volume, wanted: str) -> str:
    return READ_ONLY if volume.readonly else wanted if wanted in (READ_ONLY, READ_WRITE) else READ_WRITE
