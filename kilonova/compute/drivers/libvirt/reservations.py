"""The bytes that rebuilds under way will still write, so that no two rebuilds count the same free bytes.

A reservation is a file in the directory of the copy that a rebuild makes: an agent that starts again finds it, hosts
that share the storage see each other's, and it is removed with the copy. Its remaining size is measured at each check.
It ends when the new copy is whole and the old one removed: from then on the server's claim covers its disks.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from kilonova.compute.drivers.libvirt.disks import DISK, LAYER, Disks
from kilonova.compute.drivers.libvirt.images import Bases
from kilonova.domain.driver import INSTEAD
from kilonova.domain.errors import Failed
from kilonova.store.data_directory import finish_file

RESERVED = "reserved.json"
Bytes = Annotated[int, msgspec.Meta(ge=0)]  # a host that shares the storage cannot promise others more than there is
BLOCK = 512  # bytes, the unit of st_blocks


class Need(NamedTuple):
    """Bytes that a rebuild writes."""

    least: int  # at once: the image, as far as it is not in the cache
    most: int  # with everything that the guest may write to its new disks


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    of_copy: int  # the old one
    keeps_ephemeral: bool
    image: str
    image_least: Bytes
    image_most: Bytes
    disks: Bytes  # of the new disks when they are full
    room: str = ""  # BESIDE or INSTEAD; "": not decided yet

    @property
    def need(self) -> Need:
        return Need(self.image_least, self.image_most + self.disks)


class Reservations:
    """The reservations below `root`, of all hosts that share it."""

    def __init__(self, root: Path, disks: Disks, bases: Bases) -> None:
        self._root, self._disks, self._bases = root, disks, bases

    def write(self, server: str, copy: int, reservation: Reservation) -> None:
        path = self._disks.ready_directory(server, copy) / RESERVED
        half = path.with_suffix(".half")
        half.write_bytes(msgspec.json.encode(reservation))
        finish_file(half, path)  # the old disk may go next, because of this promise

    def withdraw(self, server: str, copy: int) -> None:
        directory = self._disks.directory(server, copy)
        for path in (directory / RESERVED, (directory / RESERVED).with_suffix(".half")):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds a half-made disk, which the undo of the rebuild removes
            directory.rmdir()
            directory.parent.rmdir()

    def held(self, server: str, copy: int, image: str) -> Need:
        """Return what other rebuilds than that of this copy will still write. One that waits for the same `image`
        fetches it for both."""
        own, total = self._disks.directory(server, copy), Need(0, 0)
        for path in self._root.glob(f"*/*/*/{RESERVED}"):
            if path.parent != own:
                with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError, Failed):  # removed, or not one
                    left = self._left(path.parent, msgspec.json.decode(path.read_bytes(), type=Reservation), image)
                    total = Need(total.least + left.least, total.most + left.most)
        return total

    def _left(self, directory: Path, reservation: Reservation, image: str) -> Need:
        old = directory.parent / str(reservation.of_copy)
        if (directory / DISK).is_file() and not old.is_dir():
            return Need(0, 0)
        is_fetched = reservation.image == image or self._bases.path(reservation.image).is_file()
        least, most = (0, 0) if is_fetched else (reservation.image_least, reservation.image_most)
        most += max(0, reservation.disks - self.taken(directory, keeps_ephemeral=reservation.keeps_ephemeral))
        if reservation.room == INSTEAD:  # these go first
            most -= self.taken(old, keeps_ephemeral=reservation.keeps_ephemeral)
        return Need(least, max(least, most))

    def taken(self, directory: Path, *, keeps_ephemeral: bool) -> int:
        """Return the space that only the disks of this copy take; files that have another name stay."""
        ephemerals = {disk.stem for disk in self._disks.ephemerals(directory)} if keeps_ephemeral else set()
        files = []
        for path in directory.glob("*"):
            if path.name != RESERVED and not _belongs(path, ephemerals):
                with contextlib.suppress(FileNotFoundError):
                    files.append(path.stat())
        return sum(one.st_blocks * BLOCK for one in files if one.st_nlink == 1)


def _belongs(path: Path, disks: set[str]) -> bool:
    """Return whether it is one of these disks, or a layer of one."""
    return path.stem in disks or (path.suffix == LAYER and path.name.split(".")[0] in disks)
