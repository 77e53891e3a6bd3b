"""Data that a host needs to reach a guest's volumes, plug its ports and fetch its image. It is read when a step is
handed out, outside of its transaction: it is in another database, and its secrets are never written to a journal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.image_bytes import ImageOrder
from kilonova.domain.messages import StepOrder
from kilonova.engine.model import IMAGE_TOKEN
from kilonova.world import VolumeService, World


async def with_devices(world: World, order: StepOrder, host: str, *, has_ports: bool, filters: bool) -> StepOrder:
    """Return the order with the ports and volumes of its guest, and with its image if the host may fetch that."""
    if order.guest is None:
        return order
    guest = await with_volumes(world, order.guest, host)
    if has_ports:
        guest = await with_ports(world, guest, filters=filters)
    return msgspec.structs.replace(order, guest=guest, image=await _image(world, order, guest.image))


async def _image(world: World, order: StepOrder, image: str) -> ImageOrder | None:
    token = order.secrets.get(IMAGE_TOKEN)
    if token is None or world.image is None:
        return None
    return ImageOrder(image=image, token=token, content=await world.image.content(image))


async def with_ports(world: World, guest: GuestSpec, *, filters: bool) -> GuestSpec:
    """Return the guest with its ports. `filters`: its host filters their traffic and needs the members of security
    groups."""
    ports = await ports_of(world, [guest.server], filters=filters)
    return msgspec.structs.replace(guest, ports=ports.get(guest.server, []))


async def ports_of(world: World, servers: Sequence[str], *, filters: bool) -> dict[str, list[GuestPort]]:
    """Return the current ports by server: the server's own row may be out of date."""
    return {} if world.network is None else await world.network.guest_ports(servers, members=filters)


async def with_volumes(world: World, guest: GuestSpec, host: str) -> GuestSpec:
    if world.volume is None:
        return guest
    volumes = [await _connected(world.volume, one, host) for one in guest.volumes]
    return msgspec.structs.replace(guest, volumes=[one for one in volumes if one is not None])


async def _connected(volumes: VolumeService, one: GuestVolume, host: str) -> GuestVolume | None:
    """Return the volume with its connection if that is this host's: another host's secret is never passed on.

    None: an administrator removed the attachment (os-force_detach). The guest runs without the volume, unless it is the
    root disk.
    """
    try:
        connection = await volumes.connection(one.attachment)
    except Refused:
        return one if one.is_root else None
    if connection.get("data", {}).get("host") != host:
        return one
    return msgspec.structs.replace(one, connection=connection)
