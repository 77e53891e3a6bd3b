"""A disk's file as pieces, which both ends divide alike. Pieces without data are not sent; the digests of the others
identify the whole file.

PUT  /disks/SERVER/COPY/NAME?size=N   frames: number of the piece, its length, its SHA-256, its bytes
GET  /disks/SERVER/COPY/NAME?size=N   {"whole": false, "pieces": numbers and digests of those received, base64}
POST /disks/SERVER/COPY/NAME?size=N   {"digest": of all pieces}: verified, then the file gets its name
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from collections.abc import Iterator, Mapping

TOKEN_HEADER = "X-Kilonova-Disk-Token"
FRAME = struct.Struct(">QI32s")  # number, length, digest
ENTRY = struct.Struct(">Q32s")  # number, digest
SMALLEST_PIECE = 256 * 1024
MOST_PIECES = 65536  # of a file: what both ends remember of it is bounded


def piece_bytes(size: int) -> int:
    """Return the length of the pieces of a file of this size; the last one may be shorter."""
    length = SMALLEST_PIECE
    while length * MOST_PIECES < size:
        length *= 2
    return length


def number_of_pieces(size: int) -> int:
    return -(-size // piece_bytes(size))


def length_of(number: int, size: int) -> int:
    return min(piece_bytes(size), size - number * piece_bytes(size))


def digest_of(piece: bytes) -> bytes:
    return hashlib.sha256(piece).digest()


def whole_digest(size: int, pieces: Mapping[int, bytes]) -> str:
    """Return the digest of the whole file, by its size and its pieces with data."""
    digest = hashlib.sha256(struct.pack(">Q", size))
    for number in sorted(pieces):
        digest.update(ENTRY.pack(number, pieces[number]))
    return digest.hexdigest()


def data_pieces(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each piece that is neither a hole nor zeros."""
    length, at = piece_bytes(size), 0
    zeros = bytes(length)
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as why:
            if why.errno == errno.ENXIO:  # no data from here on
                return
            raise
        number = at // length
        piece = read_piece(descriptor, number, size)
        if piece != zeros[: len(piece)]:
            yield number, piece
        at = (number + 1) * length


def read_piece(descriptor: int, number: int, size: int) -> bytes:
    """Return the piece, with zeros if the file has become shorter."""
    wanted = length_of(number, size)
    return os.pread(descriptor, wanted, number * piece_bytes(size)).ljust(wanted, b"\0")


def entries_in(log: bytes) -> dict[int, bytes]:
    """Return the digests by number. A partial entry at the end, of a killed writer, is ignored."""
    return dict(ENTRY.iter_unpack(log[: len(log) // ENTRY.size * ENTRY.size]))
