"""The check that an uploaded file is an image of its disk format.

Only the declared format decides: nothing here or elsewhere guesses a format from the content. A raw image is bytes,
even if those bytes are a qcow2. An image of another format must begin as that format does. Of these, only qcow2 is ever
opened, by our own reader; the others are kept and handed out as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from kilonova.domain.errors import Failed, Refused
from kilonova.services.volume.qcow2 import Qcow2

RAW, QCOW2 = "raw", "qcow2"
_SECTOR = 512
_FOOTER = b"conectix"  # of a VHD
# The signatures of each format; one of them must match. Other formats are bytes.
_MARKS: dict[str, tuple[tuple[int, bytes], ...]] = {
    "vmdk": ((0, b"KDMV"), (0, b"COWD"), (0, b"# Disk DescriptorFile")),
    "vhdx": ((0, b"vhdxfile"),),
    "vdi": ((64, b"\x7f\x10\xda\xbe"),),
    "iso": ((0x8001, b"CD001"), (0x8801, b"CD001"), (0x9001, b"CD001"), (0x8001, b"BEA01")),
    "vhd": ((0, _FOOTER),),  # or its last sector, which fixed ones have alone
}


def inspect(path: Path, disk_format: str | None, most: int) -> int | None:
    """Return the size of the disk if the format has it. Raise `Refused` with the reason. It reads less than 1 MB of
    any file; `most`: bytes that a disk may have."""
    with path.open("rb", buffering=0) as file:
        length = file.seek(0, 2)
        try:
            size = _size(file, disk_format, length)
        except Failed as why:
            raise _invalid(disk_format, why.message) from None
    if size is not None and size > most:
        raise _invalid(disk_format, f"its disk has {size} bytes; the most is {most} ([image] virtual_size_cap)")
    return size


def _size(file: BinaryIO, disk_format: str | None, length: int) -> int | None:
    if disk_format == RAW:
        return length
    if disk_format == QCOW2:
        disk = Qcow2.open(file)
        disk.inspect()
        return disk.size
    marks = _MARKS.get(disk_format or "", ())
    if disk_format == "vhd":
        marks = (*marks, (max(length - _SECTOR, 0), _FOOTER))
    if marks and not any(_at(file, offset, len(mark)) == mark for offset, mark in marks):
        raise _invalid(disk_format, f"it has no {disk_format} signature")
    return None


def _at(file: BinaryIO, offset: int, amount: int) -> bytes:
    file.seek(offset)
    return file.read(amount)


def _invalid(disk_format: str | None, why: str) -> Refused:
    text = f"The data was refused as {disk_format}: {why}. Nothing was stored; set another disk_format or convert it."
    return Refused("image_invalid", text)
