"""The bytes of volumes and snapshots: one sparse raw file each in one folder, made under another name first, so that a
file is always complete. `NAME` is complete, `NAME.part` is being made. Blocking calls run in a thread."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from kilonova.domain.errors import Failed, Refused
from kilonova.services.image.files import FULL
from kilonova.services.image.inspection import QCOW2, RAW
from kilonova.services.image.service import ImageFile
from kilonova.services.volume.converting import convert
from kilonova.services.volume.packing import Packing
from kilonova.store.data_directory import sync_directory
from kilonova.store.orphan_files import file_names, remove_expired, set_aside, unfinished
from kilonova.store.reserve import VOLUMES, DiskReserve
from kilonova.threads import COPIES, FILES

logger = logging.getLogger(__name__)
GIBIBYTE = 1024**3
BATCH = 8 * 1024 * 1024  # bytes between two looks whether the copy is still wanted
PART = ".part"
UNFINISHED = unfinished("volume-|snapshot-", PART)
PLAIN_FORMATS = (RAW, "iso", "ami", "ari", "aki")  # images that are copied byte by byte
_ZEROS = bytes(BATCH)
_FICLONE = 0x40049409  # the ioctl of Linux that lets two files share their blocks until one of them is written to


class DiskCapacity(NamedTuple):
    total_gb: int
    free_gb: int


class Backing(Protocol):
    """The storage of bytes. All verbs state the result and may be repeated; they raise `Failed`."""

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        """A file of that size, empty or with the bytes of another one, or of an image."""

    async def grow(self, name: str, size_gb: int) -> None: ...

    async def remove(self, name: str) -> bool:
        """Remove the file; return whether it is gone."""

    async def set_aside(self, name: str, now: float) -> None:
        """Move a file that no record knows out of the way, for an operator to look at."""

    async def remove_expired(self, now: float) -> None:
        """Remove what was set aside long ago."""

    async def names(self) -> list[str]:
        """Return the names of all files, including unfinished ones."""

    def read(self, name: str, disk_format: str = RAW) -> AsyncIterator[bytes]:
        """Yield the complete disk, as raw bytes or as a qcow2."""

    async def room(self) -> DiskCapacity: ...

    def stop(self) -> None:
        """Stop the copies under way, unfinished."""


class NoBytes:
    """The storage of simulated clouds: names and sizes, no bytes."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.lost: dict[str, int] = {}

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        if copy_of and copy_of not in self.sizes:
            raise _missing(copy_of)
        self.sizes[name] = size_gb

    async def grow(self, name: str, size_gb: int) -> None:
        if name not in self.sizes:
            raise _missing(name)
        self.sizes[name] = size_gb

    async def remove(self, name: str) -> bool:
        self.sizes.pop(name, None)
        return True

    async def set_aside(self, name: str, now: float) -> None:
        self.lost[name] = self.sizes.pop(name)

    async def remove_expired(self, now: float) -> None:
        pass

    async def names(self) -> list[str]:
        return sorted(self.sizes)

    async def read(self, name: str, disk_format: str = RAW) -> AsyncIterator[bytes]:
        if name not in self.sizes:
            raise _missing(name)
        for chunk in (b"",):
            yield chunk

    async def room(self) -> DiskCapacity:
        return DiskCapacity(1_000_000, 1_000_000)

    def stop(self) -> None:
        pass


class VolumeFiles:
    def __init__(self, folder: Path, reserve: DiskReserve | None = None) -> None:
        self.folder, self._reserve = folder, reserve or DiskReserve(0)
        self._stopping = threading.Event()

    async def make(self, name: str, size_gb: int, *, copy_of: str = "", image: ImageFile | None = None) -> None:
        size, stop = size_gb * GIBIBYTE, threading.Event()
        with _storage():
            if image is not None and image.disk_format == QCOW2:
                await self._convert(name, size, image)
            else:
                await COPIES.run_until_stopped(stop, self._make, name, size, copy_of, image, stop)

    async def _convert(self, name: str, size: int, image: ImageFile) -> None:
        source = await FILES.run(os.open, image.path, os.O_RDONLY)
        try:
            part, target = await FILES.run(self._begin, name)
            try:
                await convert(source, target, size, self._reserve.amount)
                await FILES.run(os.ftruncate, target, size)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            finally:
                os.close(target)
        finally:
            os.close(source)
        await FILES.run(self._finish, part)

    def _begin(self, name: str) -> tuple[Path, int]:
        self._check_reserve()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.folder / f"{name}{PART}"
        return part, os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def _finish(self, part: Path) -> None:
        os.replace(part, part.with_name(part.name.removesuffix(PART)))
        sync_directory(self.folder)

    def _make(self, name: str, size: int, copy_of: str, image: ImageFile | None, stop: threading.Event) -> None:
        part, target = self._begin(name)
        try:
            self._fill(target, size, copy_of, image, stop)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(target)
        self._finish(part)

    def _fill(self, target: int, size: int, copy_of: str, image: ImageFile | None, stop: threading.Event) -> None:
        if copy_of or image is not None:
            with self._opened(copy_of) if image is None else _opened_image(image) as source:
                if os.fstat(source).st_size > size:
                    text = f"the content is larger than {size // GIBIBYTE} GB"
                    raise Failed("volume_too_small", text, final=True)
                self._copy(source, target, stop)
        os.ftruncate(target, size)
        os.fsync(target)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        try:
            source = os.open(self.folder / name, os.O_RDONLY)
        except FileNotFoundError:
            raise _missing(name) from None
        try:
            yield source
        finally:
            os.close(source)

    def _copy(self, source: int, target: int, stop: threading.Event) -> None:
        """Copy by shared blocks if the file system can; else copy everything but holes."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(target, _FICLONE, source)
            return
        for start, end in data_extents(source, os.fstat(source).st_size):
            at = start
            while at < end:
                if stop.is_set() or self._stopping.is_set():
                    raise Failed("stopping", "the copy was interrupted; it restarts with the service")
                self._check_reserve()
                copied = _copy_piece(source, target, at, min(BATCH, end - at))
                if not copied:
                    return
                at += copied

    def _check_reserve(self) -> None:
        try:
            self._reserve.check(VOLUMES)
        except Refused as why:
            raise Failed("volume_storage_full", why.message, final=True) from None

    async def grow(self, name: str, size_gb: int) -> None:
        with _storage():
            await FILES.run(self._grow, name, size_gb * GIBIBYTE)

    def _grow(self, name: str, size: int) -> None:
        try:
            file = os.open(self.folder / name, os.O_RDWR)
        except FileNotFoundError:
            raise _missing(name) from None
        try:
            if os.fstat(file).st_size < size:  # never shorter: done twice, it may be late
                os.ftruncate(file, size)
            os.fsync(file)
        finally:
            os.close(file)

    async def remove(self, name: str) -> bool:
        """Remove the file. One that stays behind only costs space until the next start."""
        try:
            await FILES.run((self.folder / name).unlink, True)
        except OSError as error:
            logger.warning("the file of a volume cannot be removed: %s", error)
            return False
        return True

    async def set_aside(self, name: str, now: float) -> None:
        await FILES.run(set_aside, self.folder, name, now)

    async def remove_expired(self, now: float) -> None:
        await FILES.run(remove_expired, self.folder, now)

    async def names(self) -> list[str]:
        return await FILES.run(file_names, self.folder)

    async def read(self, name: str, disk_format: str = RAW) -> AsyncIterator[bytes]:
        with _storage():
            try:
                file = await FILES.run((self.folder / name).open, "rb", 0)
            except FileNotFoundError:
                raise _missing(name) from None
            try:
                chunks = await FILES.run(_chunks, file, disk_format)
                while chunk := await FILES.run(next, chunks, b""):
                    yield chunk
            finally:
                file.close()

    async def room(self) -> DiskCapacity:
        with _storage():
            usage = await FILES.run(self._room)
        return DiskCapacity(usage.total // GIBIBYTE, usage.free // GIBIBYTE)

    def _room(self) -> shutil._ntuple_diskusage:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder)

    def stop(self) -> None:
        self._stopping.set()


@contextlib.contextmanager
def _opened_image(image: ImageFile) -> Iterator[int]:
    if image.disk_format not in PLAIN_FORMATS:
        raise Failed("image_unreadable", f"images in {image.disk_format} cannot be written to a volume", final=True)
    source = os.open(image.path, os.O_RDONLY)
    try:
        yield source
    finally:
        os.close(source)


def _chunks(file: BinaryIO, disk_format: str) -> Iterator[bytes]:
    if disk_format == RAW:
        return _raw_chunks(file.fileno())
    size = os.fstat(file.fileno()).st_size
    return Packing(file, size, data_extents(file.fileno(), size)).pieces()


def _raw_chunks(file: int) -> Iterator[bytes]:
    """Yield all bytes; those of holes are not read."""
    size, at = os.fstat(file).st_size, 0
    for start, end in (*data_extents(file, size), (size, size)):
        while at < start:
            yield _ZEROS[: start - at]
            at += min(len(_ZEROS), start - at)
        while at < end:
            chunk = os.pread(file, min(BATCH, end - at), at)
            if not chunk:
                return
            yield chunk
            at += len(chunk)


def _copy_piece(source: int, target: int, at: int, length: int) -> int:
    """Copy inside the kernel where it can: this thread has a low priority, and must not hold Python's lock while it
    waits for a processor. Return how many bytes were copied; 0 at the end of the file."""
    with contextlib.suppress(OSError):  # not every file system supports it; a full one reports that again below
        if copied := os.copy_file_range(source, target, length, at, at):
            return copied
    batch = os.pread(source, length, at)
    return _write_all(target, batch, at) if batch else 0


def data_extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        at = os.lseek(file, start, os.SEEK_HOLE)
        yield start, at


def _write_all(file: int, batch: bytes, at: int) -> int:
    rest = memoryview(batch)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
    return len(batch)


def _missing(name: str) -> Failed:
    return Failed("volume_file_missing", f"the file {name} is missing from the volume storage", final=True)


@contextlib.contextmanager
def _storage() -> Iterator[None]:
    """Translate the disk's errors into words for an owner; the log has the rest."""
    try:
        yield
    except OSError as error:
        logger.warning("a volume's file cannot be used: %s", error)
        if error.errno in FULL:
            raise Failed("volume_storage_full", "the volume storage is full", final=True) from None
        raise Failed("volume_storage", "the volume storage cannot be used", final=True) from None
