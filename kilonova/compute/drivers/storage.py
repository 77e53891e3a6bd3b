"""Simulated disks: where they lie, what they hold, who holds them and who has them open.

A pool is the local storage of one host, or storage that several hosts see. A disk in it goes by (server, copy), as a
file does by its path; taking over the disk of another copy gives the same disk one more name. It is removed when nobody
holds it any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.compute.drivers.shelf import Shelf
from kilonova.domain.errors import Failed

Holder = tuple[str, int]  # host, copy


class Disk(msgspec.Struct, kw_only=True):
    pool: str
    server: str
    names: list[int]  # copies it was made for or taken over by, oldest first
    holders: list[Holder] = []
    content: list[str] = []  # where it came from, then what the guest wrote
    whole: bool = False

    @property
    def marker(self) -> str:
        return "+".join(self.content)

    @property
    def path(self) -> tuple[str, str, int]:
        return (self.pool, self.server, self.names[0])


class Storage:
    """All disks of all hosts."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._disks: dict[tuple[str, str, int], Disk] = {}  # by pool, server and each of its names
        self._opened: dict[tuple[str, str, int], Holder] = {}  # by path: which copy runs on it
        for _, _, disk in shelf.all("disk", Disk):
            self._disks.update({(disk.pool, disk.server, name): disk for name in disk.names})

    def find(self, pool: str, server: str, copy: int) -> Disk | None:
        return self._disks.get((pool, server, copy))

    def held(self, pool: str, server: str, holder: Holder) -> Disk | None:
        """The disk of this copy, if that host holds it."""
        disk = self.find(pool, server, holder[1])
        return disk if disk is not None and holder in disk.holders else None

    def begin(self, pool: str, server: str, holder: Holder) -> Disk:
        """An unfinished disk for this copy, or the one that lies there already, whole or not."""
        disk = self.find(pool, server, holder[1])
        if disk is None:
            disk = Disk(pool=pool, server=server, names=[holder[1]])
            self._disks[disk.path] = disk
        self._hold(disk, holder)
        return disk

    def complete(self, disk: Disk, content: Sequence[str]) -> None:
        disk.content = list(content)
        disk.whole = True
        self._save(disk)

    def append(self, disk: Disk, text: str) -> None:
        disk.content.append(text)
        self._save(disk)

    def adopt(self, disk: Disk, holder: Holder) -> None:
        """The disk answers to one more name and stays when those who had it before let go."""
        half = self.find(disk.pool, disk.server, holder[1])
        if half is not None and half is not disk:
            self._remove(half)  # an unfinished try under the same number
        if holder[1] not in disk.names:
            disk.names.append(holder[1])
            self._disks[disk.pool, disk.server, holder[1]] = disk
        self._hold(disk, holder)

    def release(self, disk: Disk, holder: Holder) -> None:
        """Let go; the last one to do so removes the disk."""
        self.shut(disk, holder)
        disk.holders = [other for other in disk.holders if other != holder]
        if disk.holders:
            self._save(disk)
        else:
            self._remove(disk)

    def open(self, disk: Disk, holder: Holder) -> None:
        """Take the image lock, as QEMU does."""
        other = self._opened.setdefault(disk.path, holder)
        if other != holder:
            raise Failed("disk_in_use", f"disk is in use: copy {other[1]} of server {disk.server} runs on {other[0]}")

    def shut(self, disk: Disk, holder: Holder) -> None:
        if self._opened.get(disk.path) == holder:
            del self._opened[disk.path]

    def opened_by(self, disk: Disk) -> Holder | None:
        return self._opened.get(disk.path)

    def all(self) -> list[Disk]:
        return [disk for path, disk in self._disks.items() if path == disk.path]

    def _hold(self, disk: Disk, holder: Holder) -> None:
        if holder not in disk.holders:
            disk.holders.append(holder)
        self._save(disk)

    def _remove(self, disk: Disk) -> None:
        for name in disk.names:
            del self._disks[disk.pool, disk.server, name]
        self._shelf.drop("disk", disk.pool, f"{disk.server}/{disk.names[0]}")

    def _save(self, disk: Disk) -> None:
        self._shelf.put("disk", disk.pool, f"{disk.server}/{disk.names[0]}", disk)
