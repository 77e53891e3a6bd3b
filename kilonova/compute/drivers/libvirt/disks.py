"""Disks of copies: a directory per server and copy, a file per disk. Half a disk has another name than a whole one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from pathlib import Path

from kilonova.compute.drivers.libvirt.images import MOST_DISK, Bases, begin_file
from kilonova.compute.drivers.libvirt.programs import run
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.image_bytes import ImageOrder
from kilonova.services.image.inspection import QCOW2, RAW
from kilonova.store.data_directory import finish_file
from kilonova.threads import FILES

DISK, HALF, BASE = "disk.qcow2", "disk.half", "base.raw"
SWAP, EPHEMERAL, CONFIG_DRIVE = "swap.raw", "ephemeral{}.qcow2", "config.iso"
LAYER = ".layer"  # ends the names of what a disk is laid over besides the base (moves.py)
LINKED = (BASE, SWAP, CONFIG_DRIVE)  # that a copy takes over besides its root and ephemeral disks
STORAGE = "_storage"  # beside the directories of the hosts; no host's name begins so
MIB, GIB = 1024**2, 1024**3
PASSABLE = 0o711  # QEMU may run as another user: it goes through our directories, and sees nothing in them


def storage_id(root: Path) -> str:
    """Return the id that all hosts with this directory read: a random text that the first of them wrote there."""
    path, half = root / STORAGE, root / f"{STORAGE}.{uuid.uuid4().hex}"
    if not root.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(PASSABLE)
    if not path.is_file():
        half.write_text(uuid.uuid4().hex)
        with contextlib.suppress(FileExistsError):
            os.link(half, path)  # one of several that begin together
        half.unlink()
    return path.read_text().strip()[:64]


class Disks:
    """The disks below `root`, which hosts may share; each host has its own directory for its copies."""

    def __init__(self, root: Path, host: str, bases: Bases) -> None:
        self._root = root
        self._host = host
        self._bases = bases

    def directory(self, server: str, copy: int, host: str = "") -> Path:
        return self._root / (host or self._host) / server / str(copy)

    def disk(self, server: str, copy: int) -> Path:
        return self.directory(server, copy) / DISK

    def is_whole(self, server: str, copy: int) -> bool:
        return self.disk(server, copy).is_file()

    def all(self) -> list[tuple[str, int]]:
        """Return every copy that has a directory on this host."""
        directories = [path for path in (self._root / self._host).glob("*/*") if path.name.isdigit()]
        return sorted((path.parent.name, int(path.name)) for path in directories)

    def prepare(self) -> None:
        """The host's directory; others that share `root` see it."""
        self._ready(self._root / self._host)

    def ready_directory(self, server: str, copy: int, host: str = "") -> Path:
        """Return the directory of a copy; create it if it is missing."""
        directory = self.directory(server, copy, host)
        self._ready(directory)
        return directory

    def _ready(self, folder: Path) -> None:
        for path in reversed((folder, *folder.parents)):
            if path.is_relative_to(self._root) and not path.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(PASSABLE)

    async def make(self, guest: GuestSpec, image: ImageOrder | None = None) -> None:
        """Create all disks of the copy. The root disk is the last: once it exists, the copy is whole."""
        directory = self.ready_directory(guest.server, guest.copy)
        await self._make_local(guest)
        half = directory / HALF
        await FILES.run(begin_file, half)
        if boots_from_volume(guest):  # it is never attached; it says that the copy is whole
            await run("qemu-img", "create", "-q", "-f", QCOW2, str(half), str(MIB))
        else:
            size = guest.disk_gb * GIB
            base = await self._bases.ensure(guest.image, guest.image_format, size or MOST_DISK, image)
            await FILES.run(link, base.path, directory / BASE)
            layered = ("-b", BASE, "-F", RAW)  # by a name in the same directory: it moves with the disk
            await run("qemu-img", "create", "-q", "-f", QCOW2, *layered, str(half), str(max(size, base.size)))
        await FILES.run_to_its_end(finish_file, half, directory / DISK)

    async def fit(self, guest: GuestSpec) -> None:
        """Grow the disks to the guest's sizes and make those that it lacks. None shrinks, but for swap: a guest keeps
        nothing there, so it is created again."""
        directory, sizes = self.directory(guest.server, guest.copy), local_bytes(guest)
        if guest.disk_gb and not boots_from_volume(guest):
            await self._grow(directory / DISK, guest.disk_gb * GIB)
        for disk in self.ephemerals(directory):
            await self._grow(disk, sizes.get(disk.name, 0))
        swap = directory / SWAP
        if swap.is_file() and swap.stat().st_size != sizes.get(SWAP, 0):
            swap.unlink()
        await self._make_local(guest)

    async def fits(self, guest: GuestSpec) -> bool:
        """Return whether `fit` has nothing left to do."""
        directory, sizes = self.directory(guest.server, guest.copy), local_bytes(guest)
        swap = directory / SWAP
        there = {disk.name: await self._bytes(disk) for disk in self.ephemerals(directory)}
        there |= {SWAP: swap.stat().st_size} if swap.is_file() else {}
        checked = guest.disk_gb and not boots_from_volume(guest)
        return there == sizes and (not checked or await self._bytes(directory / DISK) >= guest.disk_gb * GIB)

    def adopt(self, server: str, copy: int, other: int) -> bool:
        """Link the disk of another copy, if this host sees it. The disk stays when the other link is removed."""
        disk = self.find(server, other)
        if disk is None:
            return False
        directory = self.ready_directory(server, copy)
        others = (disk.parent / name for name in LINKED)
        layers = sorted(disk.parent.glob(f"*{LAYER}"))
        for path in (*layers, *self.ephemerals(disk.parent), *others, disk):
            if path.is_file() and not (directory / path.name).exists():
                os.link(path, directory / path.name)
        return True

    def find(self, server: str, copy: int) -> Path | None:
        """Return the disk of a copy of any host, if this host sees it."""
        disks = (directory / DISK for directory in sorted(self._root.glob(f"*/{server}/{copy}")))
        return next((disk for disk in disks if disk.is_file()), None)

    def remove(self, server: str, copy: int) -> None:
        """Remove the disk last: while it exists, the copy counts as one to be removed."""
        directory = self.directory(server, copy)
        if not directory.is_dir():
            return
        for path in sorted(directory.iterdir(), key=lambda path: path.name == DISK):
            if not path.is_dir():
                path.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        if directory.parent.is_dir() and not any(directory.parent.iterdir()):
            directory.parent.rmdir()

    def ephemerals(self, directory: Path) -> list[Path]:
        return sorted(directory.glob(EPHEMERAL.format("*")))

    async def _make_local(self, guest: GuestSpec) -> None:
        """Create the missing ephemeral and swap disks."""
        directory = self.ready_directory(guest.server, guest.copy)
        for name, size in local_bytes(guest).items():
            if (directory / name).is_file():
                continue
            half = directory / HALF
            await FILES.run(begin_file, half)
            if name == SWAP:
                os.truncate(half, size)
                await run("mkswap", str(half))
            else:
                await run("qemu-img", "create", "-q", "-f", QCOW2, str(half), str(size))
            await FILES.run_to_its_end(finish_file, half, directory / name)

    async def _grow(self, disk: Path, size: int) -> None:
        there = await self._bytes(disk)
        if there > size:
            text = f"{disk.name} of copy {disk.parent.name} of server {disk.parent.parent.name} cannot shrink"
            raise Failed("disk_shrinks", f"{text}: it has {there} bytes, the flavor {size}", final=True)
        if there < size:
            await run("qemu-img", "resize", "-q", "-f", QCOW2, str(disk), str(size))

    async def _bytes(self, disk: Path) -> int:
        """Return the size that the guest sees."""
        described = await run("qemu-img", "info", "-U", "-f", QCOW2, "--output=json", str(disk))
        return int(json.loads(described)["virtual-size"])


def link(source: Path, target: Path) -> None:
    """Give a file one more name, replacing the file that had it."""
    if target.exists() and target.samefile(source):
        return
    target.unlink(missing_ok=True)
    os.link(source, target)


def boots_from_volume(guest: GuestSpec) -> bool:
    return any(one.is_root for one in guest.volumes)


def local_bytes(guest: GuestSpec) -> dict[str, int]:
    """Return the size of every disk besides the root disk, by file name."""
    sizes = {EPHEMERAL.format(number): size * GIB for number, size in enumerate(guest.ephemeral_gb)}
    return sizes | ({SWAP: guest.swap_mb * MIB} if guest.swap_mb else {})
