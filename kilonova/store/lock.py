"""One process per data directory: two with the same SQLite files would each believe to be the only writer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kilonova.domain.errors import StoreError


class DirectoryLock:
    """The lock of a data directory, held until released or until the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_directory(path: Path | str) -> DirectoryLock:
    """Lock the data directory. The file stays after the unlock: removing it would let two processes lock two files of
    one name."""
    directory = Path(path)
    try:
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot lock the data directory {directory}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"the data directory {directory} is in use by process {holder}; stop it or choose another directory"
        ) from error
    _sign(descriptor, directory)
    return DirectoryLock(descriptor)


def _sign(descriptor: int, directory: Path) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"cannot write to the data directory {directory}: {error.strerror}") from error
