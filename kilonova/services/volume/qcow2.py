"""Reading a qcow2 image, versions 2 and 3: which pieces of the disk it holds. Plain and deflated clusters; one that
builds on another file, is encrypted or keeps its data elsewhere is refused. And writing one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from kilonova.domain.errors import Failed

MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(
    ">4sIQIIQIIQ"
)  # magic, version, backing offset and size, cluster bits, size, crypt, l1 size, l1
_FEATURES = struct.Struct(">Q")
_DIRTY, _CORRUPT = 1, 2  # of the features: what it holds can be read all the same
_OFFSET = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED = 1 << 62
_ZERO = 1
_SECTOR = 512
MOST_L1 = 32 * 1024 * 1024 // 8  # entries, as QEMU allows


class Qcow2:
    def __init__(
        self, file: BinaryIO, size: int, cluster_bits: int, first_level: tuple[int, ...], version: int
    ) -> None:
        self.size = size
        self._file, self._bits, self._first, self._version = file, cluster_bits, first_level, version

    @classmethod
    def of(cls, file: BinaryIO) -> Qcow2 | None:
        """None: it is no qcow2. Raises `Failed` for one that cannot be read here."""
        file.seek(0)
        head = file.read(_HEADER.size + 32)
        if head[:4] != MAGIC or len(head) < _HEADER.size:
            return None
        _, version, backing, _, bits, size, crypt, entries, table = _HEADER.unpack_from(head)
        if version not in (2, 3) or not 9 <= bits <= 21 or entries > MOST_L1:
            raise _bad("its header is not one of qcow2 version 2 or 3")
        if backing or crypt:
            raise _bad("it builds on another file" if backing else "it is encrypted")
        if version == 3 and _FEATURES.unpack_from(head, 72)[0] & ~(_DIRTY | _CORRUPT):
            raise _bad("it uses features that are not known here")
        file.seek(table)
        first = file.read(entries * 8)
        if len(first) < entries * 8:
            raise _bad("it ends too early")
        return cls(file, size, bits, struct.unpack(f">{entries}Q", first), version)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Where on the disk, and what; zeros are left out."""
        cluster, per_table = 1 << self._bits, 1 << (self._bits - 3)
        for number, entry in enumerate(self._first):
            offset = entry & _OFFSET
            if not offset:
                continue
            self._file.seek(offset)
            second = self._file.read(cluster)
            if len(second) < cluster:
                raise _bad("it ends too early")
            for place, told in enumerate(struct.unpack(f">{per_table}Q", second)):
                at = (number * per_table + place) * cluster
                content = self._cluster(told) if told and at < self.size else b""
                if content:
                    yield at, content[: self.size - at]

    def _cluster(self, entry: int) -> bytes:
        if entry & _COMPRESSED:
            return self._inflated(entry)
        offset = entry & _OFFSET
        if not offset or (self._version == 3 and entry & _ZERO):
            return b""
        self._file.seek(offset)
        return self._file.read(1 << self._bits)

    def _inflated(self, entry: int) -> bytes:
        shift = 62 - (self._bits - 8)
        offset = entry & ((1 << shift) - 1)
        sectors = ((entry >> shift) & ((1 << (self._bits - 8)) - 1)) + 1
        self._file.seek(offset)
        packed = self._file.read(sectors * _SECTOR - offset % _SECTOR)
        try:
            return zlib.decompressobj(-12).decompress(packed, 1 << self._bits)
        except zlib.error:
            raise _bad("one of its clusters cannot be inflated") from None


def _bad(why: str) -> Failed:
    return Failed("image_unreadable", f"the image cannot be written to a volume: {why}", final=True)


class Packing:
    """A raw disk as qcow2, version 2: without its holes, and without ever lying on a disk itself. Where everything will
    be follows from which clusters hold something, so it can be told from the first byte on."""

    bits = 16
    cluster = 1 << bits
    per_table = cluster // 8  # entries of a second-level table
    per_block = cluster // 2  # counts of a refcount block
    _whole = 1 << 63  # of an entry: used once

    def __init__(self, file: BinaryIO, size: int, data: Iterable[tuple[int, int]]) -> None:
        """`data`: the parts of the disk that are no holes."""
        self._file, self._size = file, size
        found = {number for start, end in data for number in range(start >> self.bits, _up(end, self.cluster))}
        self._held = sorted(found)
        self._tables = sorted({number // self.per_table for number in self._held})
        self._entries = _up(_up(size, self.cluster), self.per_table)
        self._first = _up(self._entries * 8, self.cluster)
        fixed = 1 + self._first + len(self._tables) + len(self._held)
        self._blocks = self._counts = 0
        while self._blocks * self.per_block < fixed + self._blocks + self._counts:
            self._blocks += 1
            self._counts = _up(self._blocks * 8, self.cluster)
        self._total = fixed + self._blocks + self._counts

    def pieces(self) -> Iterator[bytes]:
        """The whole file, a cluster or more at a time."""
        counts = 1 + self._first
        blocks = counts + self._counts
        tables = blocks + self._blocks
        data = tables + len(self._tables)
        head = (MAGIC, 2, 0, 0, self.bits, self._size, 0, self._entries, self.cluster)
        yield self._padded(_HEADER.pack(*head) + struct.pack(">QIIQ", counts << self.bits, self._counts, 0, 0))
        placed = {number: tables + place for place, number in enumerate(self._tables)}
        yield self._padded(self._numbers(placed.get(number) for number in range(self._entries)))
        yield self._padded(struct.pack(f">{self._blocks}Q", *((blocks + n) << self.bits for n in range(self._blocks))))
        yield self._padded(struct.pack(f">{self._total}H", *([1] * self._total)), self._blocks)
        places = {number: data + place for place, number in enumerate(self._held)}
        for table in self._tables:
            first = table * self.per_table
            yield self._numbers(places.get(number) for number in range(first, first + self.per_table))
        for number in self._held:
            self._file.seek(number << self.bits)
            yield self._file.read(self.cluster).ljust(self.cluster, b"\0")

    def _numbers(self, places: Iterable[int | None]) -> bytes:
        told = [0 if place is None else (place << self.bits) | self._whole for place in places]
        return struct.pack(f">{len(told)}Q", *told)

    def _padded(self, content: bytes, clusters: int = 0) -> bytes:
        return content.ljust((clusters or _up(len(content), self.cluster)) << self.bits, b"\0")


def _up(amount: int, unit: int) -> int:
    """How many units it takes."""
    return -(-amount // unit)
