"""Images in qcow2 as a friend or an enemy writes them: each field can be said."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

MAGIC = b"QFI\xfb"
COMPRESSED = 1 << 62


def qcow2(
    *,
    version: int = 3,
    bits: int = 16,
    size: int = 1024**2,
    backing: int = 0,
    crypt: int = 0,
    features: int = 0,
    order: int = 4,
    header_length: int = 104,
    l1_entries: int | None = None,
    l1_offset: int | None = None,
    refcount_clusters: int = 1,
    l1: Sequence[int] = (),
    tables: Sequence[Sequence[int]] = (),
    data: bytes = b"",
) -> bytes:
    """Header, refcount table, L1, L2 tables, data: a cluster each, or more. `l1`: numbers of clusters; without it, the
    tables one after the other. `tables`: entries as they stand in the file."""
    cluster = 1 << bits
    needed = -(-size // (cluster * (cluster // 8)))
    entries = max(needed, len(l1)) if l1_entries is None else l1_entries
    l1_clusters = min(max(1, -(-entries * 8 // cluster)), 64)
    first_table = 2 + l1_clusters
    named = [number * cluster for number in (l1 or [first_table + number for number in range(len(tables))])]
    offset = 2 * cluster if l1_offset is None else l1_offset
    head = struct.pack(">4sIQIIQIIQ", MAGIC, version, backing, 16 if backing else 0, bits, size, crypt, entries, offset)
    head += struct.pack(">QIIQ", cluster, refcount_clusters, 0, 0)
    head += struct.pack(">QQQII", features, 0, 0, order, header_length)
    body = head.ljust(2 * cluster, b"\0")
    body += struct.pack(f">{len(named)}Q", *named).ljust(l1_clusters * cluster, b"\0")
    for table in tables:
        body += struct.pack(f">{len(table)}Q", *table).ljust(cluster, b"\0")
    return body + data


def deflated(content: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -12)
    return squeeze.compress(content) + squeeze.flush()


def packed_entry(offset: int, length: int, bits: int = 16) -> int:
    """The L2 entry of a deflated cluster."""
    sectors = (offset + length - 1) // 512 - offset // 512
    return COMPRESSED | (sectors << (62 - (bits - 8))) | offset


def bomb(size: int, *, bits: int = 16, letter: bytes = b"\xff") -> bytes:
    """A small file that is a disk of this size, each cluster of it the same deflated one."""
    cluster = 1 << bits
    small = deflated(letter * cluster)
    clusters = -(-size // cluster)
    tables = -(-clusters // (cluster // 8))
    l1_clusters = max(1, -(-tables * 8 // cluster))
    entry = packed_entry((2 + l1_clusters + tables) * cluster, len(small), bits)
    full = [[entry] * (cluster // 8)] * tables
    return qcow2(bits=bits, size=size, tables=full, data=small.ljust(512, b"\0"))
