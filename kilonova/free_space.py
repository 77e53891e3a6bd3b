"""The space that is left on a disk."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that a folder is on, or will be on once it is made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize
