"""The content that simulated guests find on an image. The first line of a simulated disk names it, so a server made
from a snapshot has the content of the snapshot, however its bytes were moved in between."""

from __future__ import annotations

import re
from pathlib import Path

from kilonova.services.image.inspection import RAW

LINE = b"KILONOVA-DISK "
LONGEST = 4096  # characters
_SECTOR, _LEAST = 512, 4096  # bytes
_MARKER = re.compile(r"[!-~]{1,4096}")  # one word


def disk_with(marker: str) -> bytes:
    """Return a raw disk that simulated guests find this marker on."""
    line = LINE + marker.encode() + b"\n"
    return line.ljust(max(_LEAST, -(-len(line) // _SECTOR) * _SECTOR), b"\0")


def marker_in(path: Path, disk_format: str | None) -> str | None:
    """Return the marker of a raw file; None where it does not begin with one."""
    if disk_format != RAW:
        return None
    with path.open("rb", buffering=0) as file:
        head = file.read(len(LINE) + LONGEST + 1)
    line, end, _ = head.partition(b"\n")
    if not end or not line.startswith(LINE):
        return None
    marker = line.removeprefix(LINE).decode(errors="replace")
    return marker if _MARKER.fullmatch(marker) else None
