"""How both ends divide a disk."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.compute.transfer.pieces import (
    ENTRY,
    MOST_PIECES,
    SMALLEST_PIECE,
    data_pieces,
    digest_of,
    entries_in,
    length_of,
    number_of_pieces,
    piece_bytes,
    read_piece,
    whole_digest,
)

LARGEST = SMALLEST_PIECE * MOST_PIECES  # of a disk in the smallest pieces


@pytest.mark.parametrize(
    ("size", "length"),
    [
        (0, SMALLEST_PIECE),
        (1, SMALLEST_PIECE),
        (LARGEST, SMALLEST_PIECE),
        (LARGEST + 1, 2 * SMALLEST_PIECE),
        (2 * LARGEST, 2 * SMALLEST_PIECE),
        (5 * LARGEST, 8 * SMALLEST_PIECE),
    ],
)
def test_pieces_grow_so_that_there_are_never_too_many(size: int, length: int) -> None:
    assert piece_bytes(size) == length
    assert number_of_pieces(size) <= MOST_PIECES


@pytest.mark.parametrize("size", [1, SMALLEST_PIECE, SMALLEST_PIECE + 1, 3 * SMALLEST_PIECE, LARGEST + 7])
def test_all_pieces_together_are_the_disk(size: int) -> None:
    count = number_of_pieces(size)
    assert (count - 1) * piece_bytes(size) + length_of(count - 1, size) == size
    assert 0 < length_of(count - 1, size) <= piece_bytes(size) and (
        count == 1 or length_of(0, size) == piece_bytes(size)
    )


def test_a_disk_of_no_bytes_has_no_pieces() -> None:
    assert number_of_pieces(0) == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a disk: data, a hole, zeros that were written, data, the rest of a piece."""
    with (tmp_path / "disk").open("w+b") as file:
        for number, content in ((0, b"a"), (2, b"\0"), (3, b"b")):
            file.seek(number * SMALLEST_PIECE)
            file.write(content * SMALLEST_PIECE)
        file.seek(5 * SMALLEST_PIECE)
        file.write(b"end")
        file.flush()
        yield file.fileno(), 5 * SMALLEST_PIECE + 3


def test_a_disk_may_end_with_a_hole_and_be_nothing_else(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("w+b") as file:
        file.truncate(3 * SMALLEST_PIECE)
        assert list(data_pieces(file.fileno(), 3 * SMALLEST_PIECE)) == []
        file.write(b"x")
        file.flush()
        assert [number for number, _ in data_pieces(file.fileno(), 3 * SMALLEST_PIECE)] == [0]


def test_only_pieces_with_data_are_read(disk: tuple[int, int]) -> None:
    assert [(number, piece[:3], len(piece)) for number, piece in data_pieces(*disk)] == [
        (0, b"aaa", SMALLEST_PIECE),
        (3, b"bbb", SMALLEST_PIECE),
        (5, b"end", 3),
    ]


def test_what_was_written_behind_the_end_meanwhile_is_not_read(disk: tuple[int, int]) -> None:
    descriptor, _ = disk
    assert [number for number, _ in data_pieces(descriptor, 3 * SMALLEST_PIECE)] == [0]
    assert [(number, len(piece)) for number, piece in data_pieces(descriptor, 3 * SMALLEST_PIECE + 1)] == [
        (0, SMALLEST_PIECE),
        (3, 1),
    ]


def test_a_file_that_became_shorter_ends_with_zeros(disk: tuple[int, int]) -> None:
    descriptor, size = disk
    os.truncate(descriptor, 2)
    assert read_piece(descriptor, 0, size) == b"aa".ljust(SMALLEST_PIECE, b"\0")
    assert read_piece(descriptor, 5, size) == bytes(3)


def test_a_disk_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    read, write = os.pipe()
    with pytest.raises(OSError, match="Illegal seek"):
        next(data_pieces(read, 10))
    for descriptor in (read, write):
        os.close(descriptor)


def test_a_log_is_read_up_to_its_last_whole_entry() -> None:
    entries = {7: digest_of(b"x"), 2: digest_of(b"y")}
    log = b"".join(ENTRY.pack(*one) for one in entries.items())
    assert entries_in(log) == entries_in(log + b"half an entry") == entries
    assert entries_in(b"") == entries_in(log[: ENTRY.size - 1]) == {}


def test_one_digest_says_size_numbers_and_pieces() -> None:
    one, two = digest_of(b"x"), digest_of(b"y")
    said = [
        whole_digest(size, pieces)
        for size, pieces in ((9, {}), (8, {}), (9, {0: one}), (9, {1: one}), (9, {0: two}), (9, {0: one, 1: two}))
    ]
    assert len({*said}) == len(said)
    assert whole_digest(9, {1: two, 0: one}) == said[-1], "in whatever order they came"
    assert whole_digest(2**63, {}) != whole_digest(struct.unpack(">q", struct.pack(">Q", 2**62))[0], {})
