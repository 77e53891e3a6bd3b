"""Disks of copies: a directory per server and copy, a file per disk. Half a disk has another name than a whole one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kilonova.compute.drivers.libvirt.programs import run
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.guest import GuestSpec
from kilonova.services.image.inspection import QCOW2, RAW, inspect
from kilonova.threads import FILES

DISK, HALF, CONSOLE = "disk.qcow2", "disk.half", "console.log"
MAKING_SECONDS = 3600.0
GIB = 1024**3
MOST_DISK = 16 * 1024**4  # bytes, of a flavor that says no size


class Disks:
    """Below `root`, which hosts may share; a host's copies are in a directory of its own."""

    def __init__(self, root: Path, host: str, images: Path) -> None:
        self._root = root
        self._host = host
        self._images = images

    def place(self, server: str, copy: int, host: str = "") -> Path:
        return self._root / (host or self._host) / server / str(copy)

    def disk(self, server: str, copy: int) -> Path:
        return self.place(server, copy) / DISK

    def is_whole(self, server: str, copy: int) -> bool:
        return self.disk(server, copy).is_file()

    def all(self) -> list[tuple[str, int]]:
        """Every copy that has a directory here."""
        found = [path for path in (self._root / self._host).glob("*/*") if path.name.isdigit()]
        return sorted((path.parent.name, int(path.name)) for path in found)

    async def make(self, guest: GuestSpec) -> None:
        """The image is inspected again, and QEMU is told its format: left to guess, it would open whatever file a qcow2
        names, whoever uploaded it."""
        source, disk_format = self._images / guest.image, guest.image_format or RAW
        if not source.is_file():
            raise Failed("no_image", f"image {guest.image} is not on {self._host}", elsewhere=True)
        if disk_format not in (RAW, QCOW2):
            text = f"image {guest.image} is a {disk_format}; servers boot from raw and qcow2: convert it"
            raise Failed("image_unreadable", text, final=True)
        try:
            size = await FILES.run(inspect, source, disk_format, guest.disk_gb * GIB or MOST_DISK) or 0
        except Refused as why:
            raise Failed("image_unreadable", f"image {guest.image}: {why.message}", final=True) from None
        grown = guest.disk_gb if guest.disk_gb * GIB > size else 0
        await self._write(guest.server, guest.copy, source, disk_format, self._host, grown)

    async def send(self, server: str, copy: int, to_host: str, to_copy: int) -> None:
        """To a host whose directory is seen from here."""
        if not (self._root / to_host).is_dir():
            text = f"{self._host} cannot send a disk to {to_host}: they share no directory {self._root.name}/{to_host}"
            raise Failed("unreachable", text, final=True)
        if not (self.place(server, to_copy, to_host) / DISK).is_file():
            await self._write(server, to_copy, self.disk(server, copy), QCOW2, to_host, 0)

    def adopt(self, server: str, copy: int, other: int) -> bool:
        """The disk of another copy, if it is seen from here, gets one more name, and stays when the other name goes."""
        disk = self.find(server, other)
        if disk is None:
            return False
        self.place(server, copy).mkdir(parents=True, exist_ok=True)
        os.link(disk, self.disk(server, copy))
        return True

    def find(self, server: str, copy: int) -> Path | None:
        """The disk of any host's copy that is seen from here."""
        found = (directory / DISK for directory in sorted(self._root.glob(f"*/{server}/{copy}")))
        return next((disk for disk in found if disk.is_file()), None)

    def remove(self, server: str, copy: int) -> None:
        """The disk last: while it lies there, the copy is one that somebody still has to remove."""
        place = self.place(server, copy)
        if not place.is_dir():
            return
        for path in sorted(place.iterdir(), key=lambda path: path.name == DISK):
            path.unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        if place.parent.is_dir() and not any(place.parent.iterdir()):
            place.parent.rmdir()

    def console(self, server: str, copy: int) -> str:
        try:
            return (self.place(server, copy) / CONSOLE).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    async def _write(self, server: str, copy: int, source: Path, disk_format: str, host: str, disk_gb: int) -> None:
        place = self.place(server, copy, host)
        place.mkdir(parents=True, exist_ok=True)
        half = place / HALF
        half.unlink(missing_ok=True)  # of one who died over it
        half.touch()  # with the rights that new files have here; qemu-img's own would keep others out
        formats = ("-f", disk_format, "-O", QCOW2)
        await run("qemu-img", "convert", *formats, str(source), str(half), seconds=MAKING_SECONDS)
        if disk_gb:
            await run("qemu-img", "resize", "-q", "-f", QCOW2, str(half), str(disk_gb * GIB))
        half.rename(place / DISK)
