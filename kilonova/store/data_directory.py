"""The data directory of a process: taken by one at a time, with its own files created at the first start.

A start that fails leaves the directory as it was: what it had created by then is removed again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from kilonova.domain.errors import StoreError
from kilonova.store.lock import DirectoryLock, lock_directory
from kilonova.store.modes import repair_modes


class DataDirectory:
    """`with DataDirectory(path) as data: …; data.keep_all()` once the start has succeeded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: DirectoryLock | None = None
        self._created: list[Path] = []  # directories, outermost first
        self._before: set[str] = set()
        self._started = False

    def __enter__(self) -> Self:
        try:
            self._make()
            self._before = set(os.listdir(self.path))
        except OSError as error:
            self._forget_start()
            raise StoreError(f"cannot use the data directory {self.path}: {error.strerror}") from error
        try:
            self._lock = lock_directory(self.path)
        except StoreError:
            self._forget_start()
            raise
        repair_modes(self.path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._started:
            self._remove_new()
        if self._lock is not None:
            self._lock.release()
        if kind is not None and not self._started:
            self._forget_start()

    def keep_all(self) -> None:
        """Keep everything for the next start, even if this one fails later."""
        self._started = True

    def database(self, name: str) -> str:
        return f"sqlite:///{self.path.absolute() / name}.db"

    def secret(self, name: str, make: Callable[[], str]) -> str:
        """Return the secret in a file that only the owner may read, written at the first start: whole or not at all."""
        file = self.path / name
        if not file.exists():
            write_secret(file, make())
        return read_secret(file)

    def _make(self) -> None:
        missing = [self.path]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for directory in reversed(missing):
            if not directory.exists():
                directory.mkdir(mode=0o700 if directory == self.path else 0o777)
                self._created.append(directory)

    def _remove_new(self) -> None:
        for name in set(os.listdir(self.path)) - self._before:
            new = self.path / name
            if new.is_dir() and not new.is_symlink():
                shutil.rmtree(new, ignore_errors=True)
            else:
                new.unlink(missing_ok=True)

    def _forget_start(self) -> None:
        for directory in reversed(self._created):
            try:
                directory.rmdir()
            except OSError:
                return


def write_secret(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(text + "\n")
            out.flush()
            os.fsync(descriptor)
        os.replace(draft, file)
        sync_directory(file.parent)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}") from error


def finish_file(half: Path, whole: Path) -> None:
    """Give a file that is complete its final name. A power cut leaves all of it under that name, or nothing: programs
    like `qemu-img convert` leave its bytes in memory."""
    descriptor = os.open(half, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(half, whole)
    sync_directory(whole.parent)


def sync_directory(path: Path) -> None:
    """Make a rename in the directory durable: a power cut could undo it, and lose a new `seal.key` but not what it
    encrypted."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_secret(file: Path) -> str:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot read {file}: {getattr(error, 'strerror', 'it is not text')}") from error
    if not text:
        raise StoreError(f"{file} is empty; restore it from a backup, or remove it to have a new one made")
    return text
