"""What a host needs to reach a guest's volumes. It is asked for when a step is handed out, outside of its transaction:
another database knows it, and the secrets in it stand in no journal."""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.world import Volume, World


async def with_connections(world: World, guest: GuestSpec | None, host: str) -> GuestSpec | None:
    if guest is None or not guest.volumes or world.volume is None:
        return guest
    volumes = [await _connected(world.volume, one, host) for one in guest.volumes]
    return msgspec.structs.replace(guest, volumes=[one for one in volumes if one is not None])


async def _connected(volumes: Volume, one: GuestVolume, host: str) -> GuestVolume | None:
    """Without a connection where there is none, or only another host's: that one's secret is nobody else's. None: an
    administrator has removed the attachment (os-force_detach), so the guest goes without; not without its root disk."""
    try:
        connection = await volumes.connection(one.attachment)
    except Refused:
        return one if one.is_root else None
    if connection.get("data", {}).get("host") != host:
        return one
    return msgspec.structs.replace(one, connection=connection)
