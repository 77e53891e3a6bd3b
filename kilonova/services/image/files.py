"""The bytes of images: one file each in one folder, written under another name first, so that a file is whole.

`NAME.part` is being written, `NAME` is complete. The record says which name is an image's, so two uploads never meet.
Whatever blocks runs in a thread: a disk that stalls may not stall the event loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from kilonova.domain.errors import Refused
from kilonova.store.data_directory import sync_directory
from kilonova.store.orphan_files import file_names, remove_expired, set_aside, unfinished
from kilonova.store.reserve import IMAGES, DiskReserve
from kilonova.threads import FILES

logger = logging.getLogger(__name__)
BATCH = 1024 * 1024  # bytes that are gathered before a thread writes and hashes them
PART = ".part"
UNFINISHED = unfinished("", PART)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
T = TypeVar("T")
_ZEROS = bytes(8 * BATCH)


class Runs(Protocol):
    """A pool of threads for blocking work."""

    async def run(self, work: Callable[..., T], *arguments: Any) -> T: ...


class Facts(NamedTuple):
    """The size and the hashes of a written file."""

    size: int
    md5: str
    sha512: str


class ImageFiles:
    def __init__(self, folder: Path, reserve: DiskReserve | None = None, threads: Runs = FILES) -> None:
        self.folder, self._reserve = folder, reserve or DiskReserve(0)
        self._threads = threads

    def path(self, name: str) -> Path:
        return self.folder / name

    async def begin(self, name: str, *, tiny: bool = False) -> Draft:
        """Create an empty file that survives a crash from now on, so that the next start finds an unfinished upload.
        `tiny`: it may use the reserve of the disk."""
        with _storage():
            return await self._threads.run(self._begin, name, DiskReserve(0) if tiny else self._reserve)

    def _begin(self, name: str, reserve: DiskReserve) -> Draft:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Draft(self.path(name), reserve, self._threads)
        try:
            sync_directory(self.folder)
        except OSError:
            draft._abandon()
            raise
        return draft

    async def open(self, name: str) -> BinaryIO:
        try:
            return await self._threads.run(self.path(name).open, "rb")
        except OSError as error:
            logger.warning("the file of an image cannot be read: %s", error)
            raise Refused("image_storage", "The image's data cannot be read.") from None

    async def names(self) -> list[str]:
        """Return the names of all files, including unfinished ones."""
        return await self._threads.run(file_names, self.folder)

    async def set_aside(self, name: str, now: float, why: str = "not in the records") -> None:
        """Move a file that no image needs out of the way, for an operator to look at."""
        await self._threads.run(set_aside, self.folder, name, now, why)

    async def remove_expired(self, now: float) -> None:
        """Remove what was set aside long ago."""
        await self._threads.run(remove_expired, self.folder, now)

    async def is_held(self, name: str) -> bool:
        """Return whether an upload has the file open, in any API process that shares the folder."""
        return await self._threads.run(self._is_held, name)

    def _is_held(self, name: str) -> bool:
        try:
            with self.path(name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True  # another process has just renamed or removed it
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
        return False

    async def remove(self, name: str) -> bool:
        """Remove the file; return whether it is gone. One that stays behind only costs space until the next start."""
        try:
            await self._threads.run(self.path(name).unlink, True)
        except OSError as error:
            logger.warning("the file of an image cannot be removed: %s", error)
            return False
        return True


class Draft:
    """A file on its way. Batches, not chunks, go to a thread: a chunk of a request is small."""

    def __init__(self, final: Path, reserve: DiskReserve, threads: Runs) -> None:
        self.size, self._reserve, self._threads = 0, reserve, threads
        self.name = final.name + PART
        self._final = final
        self._path = final.with_name(self.name)
        self._file = self._path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # while it is open: other APIs that start see that it is in use
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha512 = hashlib.sha512()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._busy = threading.Lock()  # a cancelled writer goes on to `abandon` while its thread may still be writing

    async def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._waiting.append(chunk)
        self._waiting_bytes += len(chunk)
        if self._waiting_bytes >= BATCH:
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        with _storage():
            await self._threads.run(self._write, batch)

    def _write(self, batch: list[bytes]) -> None:
        with self._busy:
            self._reserve.check(IMAGES)
            for chunk in batch:
                self._md5.update(chunk)
                self._sha512.update(chunk)
                if chunk == _ZEROS[: len(chunk)]:  # a hole, as it was in a volume
                    self._file.seek(len(chunk), os.SEEK_CUR)
                    continue
                rest = memoryview(chunk)
                while rest:  # an unbuffered file may take less than all
                    rest = rest[self._file.write(rest) :]

    async def judge(self, inspect: Callable[[Path], T]) -> T:
        """Return the result of `inspect` for the file with all bytes received so far."""
        await self._write_waiting()
        with _storage():
            await self._threads.run(os.ftruncate, self._file.fileno(), self.size)  # a hole at the end counts, too
            return await self._threads.run(inspect, self._path)

    async def finish(self) -> Facts:
        """Write the file to disk under its final name, for good; it stays locked until `close`."""
        await self._write_waiting()
        with _storage():
            await self._threads.run(self._finish)
        return Facts(self.size, self._md5.hexdigest(), self._sha512.hexdigest())

    def _finish(self) -> None:
        with self._busy:
            os.ftruncate(self._file.fileno(), self.size)
            os.fsync(self._file.fileno())
            os.replace(self._path, self._final)
            sync_directory(self._final.parent)

    def close(self) -> None:
        """Close the file; its record says what becomes of it."""
        with self._busy:
            self._file.close()

    async def abandon(self) -> None:
        await self._threads.run(self._abandon)

    def _abandon(self) -> None:
        """Remove the file, also if it was finished; if that fails, the next start removes it."""
        with self._busy:
            self._file.close()
            for path in (self._path, self._final):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    logger.warning("the file of an image cannot be removed: %s", error)


@contextlib.contextmanager
def _storage() -> Iterator[None]:
    """Translate the disk's errors into words for a caller; the log has the rest."""
    try:
        yield
    except OSError as error:
        logger.warning("an image cannot be written: %s", error)
        if error.errno in FULL:
            raise Refused("image_storage_full", "The image storage is full; nothing was stored.") from None
        raise Refused("image_storage", "The image storage cannot be written; nothing was stored.") from None
