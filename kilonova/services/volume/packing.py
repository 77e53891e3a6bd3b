"""Write a raw disk as qcow2, version 2, without its holes. The position of every piece follows from the list of data
extents, so the image is streamed from its first byte on and is never stored on a disk itself."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from kilonova.services.volume.qcow2 import COUNTS, HEADER, MAGIC, whole_units

BITS = 16
CLUSTER = 1 << BITS
PER_TABLE = CLUSTER // 8  # entries of a second-level table
PER_BLOCK = CLUSTER // 2  # counts of a refcount block
AT_ONCE = 64  # clusters of data that are read at once
_WHOLE = 1 << 63  # flag of an entry: its cluster is used once


class Packing:
    def __init__(self, file: BinaryIO, size: int, data: Iterable[tuple[int, int]]) -> None:
        """`data`: the extents of the disk that are not holes, in order."""
        self._file, self._size = file, size
        self._starts, self._ends, self._before = array("Q"), array("Q"), array("Q")  # runs of clusters that hold data
        self._held = self._gather(data)
        self._tables = sorted(
            {
                table
                for first, end in zip(self._starts, self._ends, strict=True)
                for table in range(first // PER_TABLE, (end - 1) // PER_TABLE + 1)
            }
        )
        self._entries = whole_units(whole_units(size, CLUSTER), PER_TABLE)
        self._l1 = whole_units(self._entries * 8, CLUSTER)
        fixed = 1 + self._l1 + len(self._tables) + self._held
        self._blocks = self._counts = 0
        while self._blocks * PER_BLOCK < fixed + self._blocks + self._counts:
            self._blocks += 1
            self._counts = whole_units(self._blocks * 8, CLUSTER)
        self._total = fixed + self._blocks + self._counts

    def _gather(self, data: Iterable[tuple[int, int]]) -> int:
        held = 0
        for start, end in data:
            first, after = start >> BITS, whole_units(end, CLUSTER)
            if self._ends and first <= self._ends[-1]:
                held += max(after - self._ends[-1], 0)
                self._ends[-1] = max(after, self._ends[-1])
            else:
                self._starts.append(first)
                self._ends.append(after)
                self._before.append(held)
                held += after - first
        return held

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole file, one or more clusters at a time."""
        counts = 1 + self._l1
        blocks = counts + self._counts
        tables = blocks + self._blocks
        data = tables + len(self._tables)
        head = HEADER.pack(MAGIC, 2, 0, 0, BITS, self._size, 0, self._entries, CLUSTER)
        yield _padded(head + COUNTS.pack(counts << BITS, self._counts, 0, 0))
        positions = {number: tables + index for index, number in enumerate(self._tables)}
        yield from _clusters(_entry(positions.get(number)) for number in range(self._entries))
        yield from _clusters((blocks + number) << BITS for number in range(self._blocks))
        for block in range(self._blocks):
            used = min(PER_BLOCK, self._total - block * PER_BLOCK)
            yield _padded(b"\0\1" * used)
        for table in self._tables:
            yield self._second_level(table, data)
        yield from self._content()

    def _second_level(self, table: int, data: int) -> bytes:
        first, after = table * PER_TABLE, (table + 1) * PER_TABLE
        entries = [0] * PER_TABLE
        run = max(bisect_right(self._starts, first) - 1, 0)
        while run < len(self._starts) and self._starts[run] < after:
            start, end = max(self._starts[run], first), min(self._ends[run], after)
            position = data + self._before[run] + start - self._starts[run]
            for number in range(start, end):
                entries[number - first] = ((position + number - start) << BITS) | _WHOLE
            run += 1
        return struct.pack(f">{PER_TABLE}Q", *entries)

    def _content(self) -> Iterator[bytes]:
        for start, end in zip(self._starts, self._ends, strict=True):
            for first in range(start, end, AT_ONCE):
                amount = min(AT_ONCE, end - first) << BITS
                self._file.seek(first << BITS)
                yield self._file.read(amount).ljust(amount, b"\0")


def _clusters(entries: Iterable[int]) -> Iterator[bytes]:
    """A table of one or more clusters."""
    numbers = list(entries)
    for start in range(0, len(numbers), PER_TABLE):
        part = numbers[start : start + PER_TABLE]
        yield _padded(struct.pack(f">{len(part)}Q", *part))


def _entry(cluster: int | None) -> int:
    return 0 if cluster is None else (cluster << BITS) | _WHOLE


def _padded(content: bytes) -> bytes:
    return content.ljust(CLUSTER, b"\0")
