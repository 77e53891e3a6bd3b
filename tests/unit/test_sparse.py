"""The sum of a sparse file is one of its content, wherever its holes are."""

import os

import pytest

from tests.support.sparse import copy_tree, digest

SIZE = 1 << 30


@pytest.fixture
def path(tmp_path):
    (tmp_path / "tree").mkdir()
    path = tmp_path / "tree" / "volume"
    with path.open("wb") as file:
        file.truncate(SIZE)
        os.pwrite(file.fileno(), b"data", 300_000_001)
    return path


def write(path, data, offset):
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), data, offset)


@pytest.mark.parametrize("offset", [0, 299_999_999, 300_000_001, SIZE - 1])
def test_any_other_byte_is_noticed(path, offset):
    before = digest(path)
    write(path, b"x", offset)
    assert digest(path) != before


def test_a_longer_file_is_noticed(path):
    before = digest(path)
    os.truncate(path, SIZE + 1)
    assert digest(path) != before


def test_written_zeros_are_no_difference(path):
    before = digest(path)
    write(path, bytes(200_000), 5_000_000)
    assert digest(path) == before


def test_a_copy_has_the_same_sum_and_the_same_holes(path, tmp_path):
    copy = copy_tree(path.parent, tmp_path / "copy") / path.name
    assert digest(copy) == digest(path)
    assert copy.stat().st_blocks * 512 < 1 << 20
