"""The console file of a copy: bounded, for its owner alone, and read from its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

CONSOLE, EARLIER = "console.log", "console.log.0"
MOST_BYTES = 1024 * 1024  # bytes in the file; when it is longer, it becomes the earlier one
MOST_READ = 100 * 1024  # bytes, as in Nova
PIECE = 64 * 1024


def prepare(directory: Path) -> None:
    """Create an empty file before QEMU opens it: QEMU's own would be readable for all users."""
    path = directory / CONSOLE
    if not path.exists():
        path.touch(mode=0o600)


def read(directory: Path) -> str:
    """Return the end of the guest's output; "" if there is none."""
    newest = _tail(directory / CONSOLE, MOST_READ)
    earlier = _tail(directory / EARLIER, MOST_READ - len(newest)) if len(newest) < MOST_READ else b""
    return (earlier + newest).decode(errors="replace").replace("\r\n", "\n")


def _tail(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
            return file.read(most)
    except FileNotFoundError:
        return b""


def bound_all(directories: Iterable[Path]) -> None:
    for directory in directories:
        bound(directory)


def bound(directory: Path) -> None:
    """Keep the last of a long file aside and empty it. QEMU appends, so it goes on at the new end; what a guest writes
    between the two is lost, which is better than a full disk."""
    path = directory / CONSOLE
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size <= MOST_BYTES:
            return
        half = directory / f"{EARLIER}.half"
        half.unlink(missing_ok=True)
        with path.open("rb") as source, os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as target:
            source.seek(-MOST_BYTES, os.SEEK_END)
            while piece := source.read(PIECE):
                target.write(piece)
        os.truncate(path, 0)
        half.replace(directory / EARLIER)
