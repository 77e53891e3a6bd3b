"""The reader of qcow2 images, versions 2 and 3, of any writer: plain and deflated clusters. The writer is in
packing.py.

An image is an untrusted upload. An image that needs another file, is encrypted or uses unknown features is refused.
Every offset must lie inside the file. The work is bounded by the disk's size and by the file's length: tables and plain
clusters are never read more often than the file can hold them, and a deflated cluster costs at least the bytes that the
best compression would leave.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from kilonova.domain.errors import Failed

MAGIC = b"QFI\xfb"
# magic, version, backing offset and size, cluster bits, size, crypt, l1 entries, l1 offset
HEADER = struct.Struct(">4sIQIIQIIQ")
COUNTS = struct.Struct(">QIIQ")  # of version 2 and 3: refcount table, its clusters, number of snapshots, their offset
_VERSION_3 = struct.Struct(">QQQII")  # incompatible, compatible, autoclear features; refcount order; header length
_DIRTY, _CORRUPT = 1, 2  # features of an image that can be read all the same
_EXTERNAL_DATA, _COMPRESSION, _WIDE_ENTRIES = 4, 8, 16
_FEATURES = {
    _EXTERNAL_DATA: "keeps its data in another file",
    _COMPRESSION: "uses a compression other than deflate",
    _WIDE_ENTRIES: "uses extended L2 entries",
}
_OFFSET = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED = 1 << 62
_ZERO = 1
_SECTOR = 512
_DEFLATE_BEST = 1040  # bytes out of one byte; deflate reaches 1032
_SLICE = 64 * 1024  # bytes of a table that are read at once
MOST_L1 = 32 * 1024 * 1024  # bytes, as QEMU allows
MOST_REFCOUNTS = 8 * 1024 * 1024  # bytes of the refcount table, as QEMU allows
INSPECTED_L1 = 128 * 1024  # bytes of tables that `inspect` looks at
INSPECTED_L2 = 512 * 1024


class Header(NamedTuple):
    version: int
    bits: int
    size: int  # of the disk, bytes
    l1: int
    length: int  # of the file, bytes

    @property
    def cluster(self) -> int:
        return 1 << self.bits

    @property
    def per_table(self) -> int:
        return 1 << (self.bits - 3)

    @property
    def entries(self) -> int:
        """The number of first-level entries that the disk needs; any beyond them are ignored."""
        return whole_units(whole_units(self.size, self.cluster), self.per_table)


class Qcow2:
    """An image whose header was checked; its tables are checked as they are read."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self.size = header.size
        self._file, self._header = file, header
        self._tables = self._plain = self._packed = self._packed_bytes = 0

    @classmethod
    def open(cls, file: BinaryIO) -> Qcow2:
        """Open an image. Raise `Failed` unless it is a plain qcow2."""
        return cls(file, read_header(file))

    def inspect(self) -> None:
        """Check as much of the tables as can be read quickly. Raise `Failed`."""
        offsets = [offset for entries in self._first_level(INSPECTED_L1) for offset in entries if offset]
        if len(set(offsets)) < len(offsets):
            raise _bad("two of its L1 entries have the same L2 table")
        step = max(1, len(offsets) * min(self._header.cluster, _SLICE) // INSPECTED_L2)
        for offset in offsets[::step][: INSPECTED_L2 // min(self._header.cluster, _SLICE)]:
            self._check_table(offset)

    def _check_table(self, offset: int) -> None:
        amount = min(self._header.cluster, _SLICE)
        for entry in set(self._numbers(offset, amount)):
            if entry & _COMPRESSED:
                self._extent(entry)
            else:
                self._check_offset(entry & _OFFSET, "a cluster")

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield offsets on the disk and their bytes; zeros are left out."""
        header, zeros, number = self._header, bytes(self._header.cluster), 0
        for slice_ in self._first_level(MOST_L1):
            for offset in slice_:
                if offset:
                    self._tables = self._counted(self._tables, "L2 tables")
                    for at, entry in self._second_level(number, offset):
                        content = self._cluster(entry)[: header.size - at]
                        if content != zeros[: len(content)]:
                            yield at, content
                number += 1

    def _first_level(self, most: int) -> Iterator[list[int]]:
        """Yield offsets of second-level tables, 0 if there is none. At most `most` bytes are read."""
        wanted = min(self._header.entries * 8, most)
        for start in range(0, wanted, _SLICE):
            entries = self._numbers(self._header.l1 + start, min(_SLICE, wanted - start))
            offsets = [entry & _OFFSET for entry in entries]
            for offset in offsets:
                self._check_offset(offset, "an L2 table")
            yield offsets

    def _second_level(self, number: int, offset: int) -> Iterator[tuple[int, int]]:
        """Yield the offset on the disk of each used entry of this table, in order, and the entry."""
        header = self._header
        first = number * header.per_table
        wanted = min(header.per_table, whole_units(header.size, header.cluster) - first) * 8
        for start in range(0, wanted, _SLICE):
            entries = self._numbers(offset + start, min(_SLICE, wanted - start))
            for cluster_index, entry in enumerate(entries, first + start // 8):
                if entry:
                    yield cluster_index * header.cluster, entry

    def _cluster(self, entry: int) -> bytes:
        if entry & _COMPRESSED:
            return self._inflated(entry)
        offset = entry & _OFFSET
        self._check_offset(offset, "a cluster")
        if not offset or (self._header.version == 3 and entry & _ZERO):
            return b""
        self._plain = self._counted(self._plain, "clusters")
        self._file.seek(offset)
        return self._file.read(self._header.cluster)  # less at the end of the file: the rest is zeros

    def _inflated(self, entry: int) -> bytes:
        offset, amount = self._extent(entry)
        self._packed += 1
        self._packed_bytes += amount
        length = self._header.length
        if (
            self._packed * (self._header.cluster // _DEFLATE_BEST + 1) > length
            or self._packed_bytes > length + self._packed * 2 * _SECTOR
        ):
            raise _bad("its deflated clusters overlap")
        self._file.seek(offset)
        packed = self._file.read(amount)
        try:
            return zlib.decompressobj(-12).decompress(packed, self._header.cluster)
        except zlib.error:
            raise _bad("one of its clusters cannot be inflated") from None

    def _extent(self, entry: int) -> tuple[int, int]:
        """Return the offset of a deflated cluster in the file, and its maximum length."""
        shift = 62 - (self._header.bits - 8)
        offset = entry & ((1 << shift) - 1)
        sectors = ((entry >> shift) & ((1 << (self._header.bits - 8)) - 1)) + 1
        if offset >= self._header.length:
            raise _bad("one of its entries points past the end of the file")
        return offset, sectors * _SECTOR - offset % _SECTOR

    def _counted(self, count: int, what: str) -> int:
        if count * self._header.cluster >= self._header.length:
            raise _bad(f"its {what} overlap: they would be more than the file holds")
        return count + 1

    def _check_offset(self, offset: int, what: str) -> None:
        if offset & (self._header.cluster - 1):
            raise _bad(f"the offset of {what} is not aligned to a cluster")
        if offset >= self._header.length:
            raise _bad("one of its entries points past the end of the file")

    def _numbers(self, offset: int, amount: int) -> tuple[int, ...]:
        self._file.seek(offset)
        content = self._file.read(amount)
        if len(content) < amount:
            raise _bad("it ends in the middle of a table")
        return struct.unpack(f">{amount // 8}Q", content)


def read_header(file: BinaryIO) -> Header:
    """Read the header. Raise `Failed` unless every field is supported."""
    length = file.seek(0, 2)
    file.seek(0)
    head = file.read(HEADER.size + COUNTS.size + _VERSION_3.size)
    if head[:4] != MAGIC:
        raise _bad("it has no qcow2 signature")
    if len(head) < HEADER.size + COUNTS.size:
        raise _bad("it ends in the middle of its header")
    _, version, backing, _, bits, size, crypt, entries, l1 = HEADER.unpack_from(head)
    if version not in (2, 3) or not 9 <= bits <= 21:
        raise _bad(f"version {version} with clusters of 2^{bits} bytes is not supported; 2 and 3 are, with 2^9 to 2^21")
    if backing:
        raise _bad("it has a backing file")
    if crypt:
        raise _bad("it is encrypted")
    if version == 3:
        _check_version_3(head, 1 << bits)
    header = Header(version, bits, size, l1, length)
    if header.entries > entries or entries * 8 > MOST_L1:
        raise _bad(f"its L1 table of {entries} entries does not fit a disk of {size} bytes")
    _check_inside(header, l1, entries * 8, "L1 table")
    counts, clusters = COUNTS.unpack_from(head, HEADER.size)[:2]
    if clusters * header.cluster > MOST_REFCOUNTS + header.cluster:
        raise _bad(f"its refcount table of {clusters} clusters is too large")
    _check_inside(header, counts, min(clusters, 1) * header.cluster, "refcount table")
    return header


def _check_version_3(head: bytes, cluster: int) -> None:
    if len(head) < HEADER.size + COUNTS.size + _VERSION_3.size:
        raise _bad("it ends in the middle of its header")
    features, _, _, order, length = _VERSION_3.unpack_from(head, HEADER.size + COUNTS.size)
    for bit, what in _FEATURES.items():
        if features & bit:
            raise _bad(f"it {what}")
    if features & ~(_DIRTY | _CORRUPT):
        raise _bad(f"it uses unknown features ({features:#x})")
    if order > 6 or not 104 <= length <= cluster:
        raise _bad(f"its header of {length} bytes with refcounts of 2^{order} bits is not supported")


def _check_inside(header: Header, offset: int, amount: int, what: str) -> None:
    if offset % header.cluster or offset + amount > header.length or (amount and offset < header.cluster):
        raise _bad(f"its {what} is not inside the file")


def _bad(why: str) -> Failed:
    return Failed("image_unreadable", f"the qcow2 image cannot be used: {why}", final=True)


def whole_units(amount: int, unit: int) -> int:
    """Return how many units hold this amount."""
    return -(-amount // unit)
