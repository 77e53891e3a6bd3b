"""The check of disks that another host has sent. That host is trusted with its own guests only: QEMU would open any
file that a qcow2 names, so a disk may name only files that were sent with it."""

from __future__ import annotations

import struct
from pathlib import Path

from kilonova.compute.drivers.libvirt.disks import LAYER
from kilonova.compute.transfer.receiver import BASE, NAMES
from kilonova.domain.errors import Failed
from kilonova.services.image.inspection import QCOW2, RAW
from kilonova.services.volume.qcow2 import HEADER, MAGIC

MOST_LAYERS = 16
_INCOMPATIBLE = struct.Struct(">Q")
_INCOMPATIBLE_AT, _LENGTH_AT = 72, 100
_KNOWN = 0b01011  # dirty, corrupt, compression type; no external data file, no extended entries
_EXTENSION = struct.Struct(">II")  # type, length
_BACKING_FORMAT = 0xE2792ACA
_LONGEST_NAME = 1023
_HEAD_BYTES = 65536


def check_received(path: Path, name: str) -> None:
    """Raise `Failed` unless a guest may get this file under this name."""
    if name.endswith(LAYER) and len(list(path.parent.glob(f"*{LAYER}"))) >= MOST_LAYERS:
        raise Failed("bad_disk", f"more than {MOST_LAYERS} layers", final=True)
    if name == BASE:
        return
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    try:
        backing, backing_format = _backing(head)
    except struct.error:
        raise _bad("it ends early") from None
    expected = RAW if backing == BASE else QCOW2
    if backing and (not NAMES.fullmatch(backing) or backing_format != expected):
        raise _bad(f"it is laid over {backing[:80]!r} as {backing_format[:16]!r}")


def _backing(head: bytes) -> tuple[str, str]:
    """Return the name and format of the file's base; empty if there is none."""
    magic, version, offset, size, *_ = HEADER.unpack_from(head)
    if magic != MAGIC or version not in (2, 3):
        raise _bad("it is not a qcow2 of version 2 or 3")
    length = 72
    if version == 3:
        (features,) = _INCOMPATIBLE.unpack_from(head, _INCOMPATIBLE_AT)
        if features & ~_KNOWN:
            raise _bad(f"it has the incompatible features {features:#x}")
        (length,) = struct.unpack_from(">I", head, _LENGTH_AT)
    if not offset:
        return "", ""
    if size > _LONGEST_NAME or offset + size > len(head):
        raise _bad("the name of the file that it is laid over is not in its head")
    return head[offset : offset + size].decode(errors="replace"), _format(head, length, offset)


def _format(head: bytes, at: int, end: int) -> str:
    while at + _EXTENSION.size <= end:
        kind, length = _EXTENSION.unpack_from(head, at)
        at += _EXTENSION.size
        if kind == 0:
            break
        if kind == _BACKING_FORMAT:
            return head[at : at + length].decode(errors="replace")
        at += (length + 7) // 8 * 8
    return ""


def _bad(why: str) -> Failed:
    return Failed("bad_disk", f"{why}; a disk that was sent may only be laid over those that came with it", final=True)
