"""The place of a rebuild's new disks: beside the old ones, or instead of them if the host has no space for both.

The new disks are counted as large as they may become. A rebuild claims nothing: until they are removed, the old disks
use up the server's claim. The old ones go first only where the new ones are then sure to fit. On a host that promises
more disk than it has, the new ones are created beside the old ones as long as what is written at once fits. Space
promised to other rebuilds is not free (reservations.py).
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilonova.compute.drivers.libvirt.disks import GIB, SWAP, Disks, boots_from_volume, local_bytes
from kilonova.compute.drivers.libvirt.images import MOST_DISK, Bases
from kilonova.compute.drivers.libvirt.reservations import Need, Reservation, Reservations
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.image_bytes import ImageOrder
from kilonova.free_space import free_bytes
from kilonova.threads import FILES

logger = logging.getLogger(__name__)


class Space(NamedTuple):
    """Bytes of the host's storage."""

    free: int
    old: int  # the present size of the old disks
    held: Need  # of `free`, the bytes reserved for other rebuilds


def choose_room(need: Need, space: Space) -> str:
    """Return BESIDE, INSTEAD, or "" if neither fits."""
    free = space.free - space.held.most
    if need.most <= free:
        return BESIDE
    if need.most <= free + space.old:
        return INSTEAD
    return BESIDE if need.least <= space.free - space.held.least else ""


class RebuildRoom:
    def __init__(self, root: Path, disks: Disks, bases: Bases) -> None:
        self._root, self._disks, self._bases = root, disks, bases
        self._reservations = Reservations(root, disks, bases)
        self._choosing = asyncio.Lock()

    async def find(self, guest: GuestSpec, of_copy: int, image: ImageOrder | None, *, keeps_ephemeral: bool) -> str:
        """`Driver.room_for_rebuild`."""
        if boots_from_volume(guest):
            return BESIDE  # its root disk is not on this host
        limit = guest.disk_gb * GIB or MOST_DISK
        missing = await self._bases.missing(guest.image, guest.image_format, limit, image)
        local = {name: size for name, size in local_bytes(guest).items() if name == SWAP or not keeps_ephemeral}
        wanted = Reservation(
            of_copy=of_copy,
            keeps_ephemeral=keeps_ephemeral,
            image=guest.image,
            image_least=missing.least,
            image_most=missing.most,
            disks=(guest.disk_gb * GIB or missing.disk) + sum(local.values()),
        )
        try:
            async with self._choosing:
                room, space = await self._reserve(guest, wanted)
            if room == INSTEAD and missing.most <= space.free - space.held.most:
                # then only an empty disk is created once the old one is gone
                await self._bases.ensure(guest.image, guest.image_format, limit, image)
        except BaseException:
            await FILES.run(self._reservations.withdraw, guest.server, guest.copy)
            raise
        _report(guest, room, wanted.need, space)
        return room

    async def _reserve(self, guest: GuestSpec, wanted: Reservation) -> tuple[str, Space]:
        """Reserve first and look then: of two hosts that share the storage, at least one sees the other."""
        await self._write(guest, wanted)
        space = await FILES.run(self._measure, guest, wanted)
        if wanted.need.most > space.free - space.held.most:
            await self._bases.clean(at_once=True)
            space = await FILES.run(self._measure, guest, wanted)
        room = choose_room(wanted.need, space)
        if not room:
            text = f"host storage {self._root}: no room to rebuild server {guest.server}: {wanted.need.least} bytes are"
            text += f" needed at once, {space.free} are free, of which other rebuilds will use {space.held.least}, and"
            text += f" {space.old} are in its old disks; free some, or migrate the server"
            raise Failed("host_storage", text, elsewhere=True)
        await self._write(guest, msgspec.structs.replace(wanted, room=room))
        return room, space

    async def _write(self, guest: GuestSpec, reservation: Reservation) -> None:
        try:
            await FILES.run(self._reservations.write, guest.server, guest.copy, reservation)
        except OSError as why:  # not a byte is left
            text = f"host storage {self._root}: no room to rebuild server {guest.server}: {why.strerror}; free some"
            raise Failed("host_storage", f"{text}, or migrate the server", elsewhere=True) from why

    def _measure(self, guest: GuestSpec, wanted: Reservation) -> Space:
        old = self._disks.directory(guest.server, wanted.of_copy)
        taken = self._reservations.taken(old, keeps_ephemeral=wanted.keeps_ephemeral)
        return Space(free_bytes(self._root), taken, self._reservations.held(guest.server, guest.copy, guest.image))


def _report(guest: GuestSpec, room: str, need: Need, space: Space) -> None:
    action = "keep it until the new one runs" if room == BESIDE else "remove it first"
    numbers = f"needed={need.most} at_once={need.least} free={space.free} reserved={space.held.most} old={space.old}"
    logger.info("rebuild: server=%s copy=%s old_disk=%s %s", guest.server, guest.copy, action, numbers)
