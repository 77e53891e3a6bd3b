"""Images on a host: where a disk's bytes come from, and the bases that disks are laid over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from kilonova.compute.drivers.libvirt.programs import LONG_SECONDS, run
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.image_bytes import ImageOrder
from kilonova.services.image.inspection import QCOW2, RAW, inspect
from kilonova.store.data_directory import finish_file
from kilonova.threads import COPIES, FILES

logger = logging.getLogger(__name__)
BASES = "_base"  # beside the directories of the hosts; no host's name begins so
UNUSED_SECONDS = 24 * 3600.0  # that a base stays without a disk over it
OF_THE_DISK = ("host_storage", "program_failed")  # failures that may be those of a full disk
FRESH_SECONDS = 600.0  # that it stays where room is needed at once: a disk may be about to be laid over it
MOST_DISK = 16 * 1024**4  # bytes, of a disk whose flavor has no size
PART = "part"  # ends the name of an image that is being fetched
PRIVATE = 0o600
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class LocalImage(NamedTuple):
    path: Path
    disk_format: str  # as its owner declared it; "": the caller knows it
    is_temporary: bool = False  # no other user of the file exists


class ImageSize(NamedTuple):
    """The space that an image takes on a host, in bytes."""

    disk_format: str  # as `LocalImage`
    copied: int  # of the file that is removed again once the base exists
    content: int  # of the image as it is stored
    disk: int  # of the disk that it holds


class Missing(NamedTuple):
    """The space that a base still needs, in bytes."""

    least: int
    most: int
    disk: int  # of the disk that the image holds, also where the base is there


class ImageSource(Protocol):
    """The source of a host's images."""

    async def measure(self, image: str, declared: str, order: ImageOrder | None) -> ImageSize:
        """Measure an image without fetching it. Raise `Failed` or `Refused` if the image is not available or not what
        it is declared to be."""

    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        """Return a complete, verified file on this machine. `order`: the permission to fetch it. Raise `Failed` or
        `Refused`."""


class LocalImages(ABC):
    """Images that are files on this machine already."""

    @abstractmethod
    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        """Return the image's file."""

    async def measure(self, image: str, declared: str, order: ImageOrder | None) -> ImageSize:
        local = await self.fetch(image, order)
        disk_format = local.disk_format or declared or RAW
        disk = await FILES.run(inspect, local.path, disk_format, MOST_DISK)
        content = (await FILES.run(local.path.stat)).st_size
        return ImageSize(disk_format, 0, content, disk or content)


class FolderImages(LocalImages):
    """Images in a directory, one file each, named by its id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        path = self._folder / checked(image)
        if not await FILES.run(path.is_file):
            raise Failed("no_image", f"image {image} is not in {self._folder}", elsewhere=True)
        return LocalImage(path, "")


class ServiceImages(LocalImages):
    """Images of the image service of the same process."""

    def __init__(self, find: Callable[[str], Awaitable[tuple[Path, str]]]) -> None:
        self._find = find

    async def fetch(self, image: str, order: ImageOrder | None) -> LocalImage:
        return LocalImage(*await self._find(checked(image)))


class Base(NamedTuple):
    path: Path
    size: int  # bytes


class Bases:
    """Images as raw files. A disk is an overlay over a hard link to one, so a base without other links is unused."""

    def __init__(self, root: Path, source: ImageSource, host: str = "") -> None:
        """`host`: whose half-made files these are, where several hosts share `root`."""
        self._folder = root / BASES
        self._source, self._host = source, host
        self._making: dict[str, asyncio.Lock] = {}

    async def ensure(self, image: str, declared: str, most: int = MOST_DISK, order: ImageOrder | None = None) -> Base:
        """Raise `Failed` if it is not available, or is larger than `most` bytes. Guests that need it at the same time
        wait for one of them."""
        path = self.path(image)
        lock = self._making.setdefault(image, asyncio.Lock())
        async with lock:
            if not await FILES.run(path.is_file):
                await self._make_room_and_make(image, declared, path, most, order)
        size = (await FILES.run(path.stat)).st_size
        _require_fit(image, size, most)
        await FILES.run(os.utime, path)  # it is in use now
        return Base(path, size)

    async def missing(self, image: str, declared: str, most: int, order: ImageOrder | None = None) -> Missing:
        """Return the space that `ensure` would need. Raise `Failed` if that is sure to fail."""
        path = self.path(image)
        if await FILES.run(path.is_file):
            await FILES.run(os.utime, path)  # it is in use now
            there = (await FILES.run(path.stat)).st_size
            _require_fit(image, there, most)
            return Missing(0, 0, there)
        try:
            size = await self._source.measure(image, declared, order)
        except Refused as why:
            raise Failed("image_unreadable", f"image {image}: {why.message}", final=True) from None
        _require_format(image, size.disk_format)
        _require_fit(image, size.disk, most)
        return Missing(size.copied + min(size.content, size.disk), size.copied + size.disk, size.disk)

    def path(self, image: str) -> Path:
        return self._folder / f"{checked(image)}.{RAW}"

    def image_of(self, base: Path) -> str:
        """Return the image of a linked base; "" if the image's own file was removed."""
        try:
            inode = base.stat().st_ino
            return next((path.stem for path in self._folder.glob(f"*.{RAW}") if path.stat().st_ino == inode), "")
        except FileNotFoundError:
            return ""

    async def cache(self, order: ImageOrder) -> None:
        """Have it before a guest needs it, if its format is known: a base of the wrong one would be used later.
        Failing costs time only."""
        if order.content is None or not order.content.disk_format:
            return
        try:
            await self.ensure(order.image, order.content.disk_format, order=order)
        except (Failed, Refused) as why:
            logger.info("image not cached: image=%s reason=%s", order.image, why.message)

    async def _make_room_and_make(
        self, image: str, declared: str, path: Path, most: int, order: ImageOrder | None
    ) -> None:
        """Make the base. If the host is full, remove bases that no disk uses and retry: a guest waits for this one."""
        try:
            await self._make(image, declared, path, most, order)
        except Failed as why:
            if why.code not in OF_THE_DISK or not await self.clean(at_once=True):
                raise
            await self._make(image, declared, path, most, order)

    async def _make(self, image: str, declared: str, path: Path, most: int, order: ImageOrder | None) -> None:
        """Make a base, with the format passed to QEMU and the image inspected again: left to guess, QEMU would open
        any file that a qcow2 names, no matter who uploaded it."""
        try:
            local = await self._source.fetch(image, order)
        except Refused as why:
            raise Failed("image_unreadable", f"image {image}: {why.message}", final=True) from None
        try:
            await self._convert(image, local, local.disk_format or declared or RAW, path, most)
        finally:
            if local.is_temporary:
                await FILES.run(local.path.unlink, True)

    async def _convert(self, image: str, local: LocalImage, disk_format: str, path: Path, most: int) -> None:
        """Refuse a disk that is too large before a byte of it is written: a small file may hold a large one."""
        _require_format(image, disk_format)
        try:
            disk = await FILES.run(inspect, local.path, disk_format, MOST_DISK)
        except Refused as why:
            raise Failed("image_unreadable", f"image {image}: {why.message}", final=True) from None
        _require_fit(image, disk or 0, most)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)
        half = path.with_name(f"{path.stem}.{self._host}.half")
        await FILES.run(begin_file, half)
        try:
            formats = ("-f", disk_format, "-O", RAW)
            await run("qemu-img", "convert", *formats, str(local.path), str(half), seconds=LONG_SECONDS)
            await COPIES.run_to_its_end(finish_file, half, path)  # else it may give its name to the file of a retry
        except (Failed, OSError):
            await FILES.run(half.unlink, True)  # a full disk would stay full
            raise

    async def clean(self, *, at_once: bool = False) -> int:
        """Return the number of files that were removed. `at_once`: room is needed now."""
        return await FILES.run(self._clean, FRESH_SECONDS if at_once else UNUSED_SECONDS)

    def _clean(self, seconds: float) -> int:
        """Remove bases that no disk uses, and files of fetches that were not continued."""
        removed = 0
        for path in self._folder.glob("*.*"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if status.st_nlink == 1 and status.st_mtime < time.time() - seconds:
                    path.unlink()
                    removed += 1
        return removed


def checked(image: str) -> str:
    """Return an image's id after checking that it is not a path. Raise `Failed`."""
    if not _ID.fullmatch(image):
        raise Failed(
            "bad_image", f"image id {image[:80]!r}: 1 to 64 letters, digits and hyphens are allowed", final=True
        )
    return image


def _require_format(image: str, disk_format: str) -> None:
    if disk_format not in (RAW, QCOW2):
        text = f"image {image} is a {disk_format}; servers boot from raw and qcow2: convert it"
        raise Failed("image_unreadable", text, final=True)


def _require_fit(image: str, size: int, most: int) -> None:
    if size > most:
        text = f"image {image}: its disk has {size} bytes, the flavor's {most}; use a larger flavor"
        raise Failed("image_too_large", text, final=True)


def begin_file(half: Path) -> None:
    """Create an empty file for its owner alone; qemu-img writes into it and keeps its mode."""
    half.unlink(missing_ok=True)  # left by an agent that died
    half.touch(mode=PRIVATE)
