"""The layout of an image that is written: every cluster once, and none that is not needed."""

from __future__ import annotations

import io

import pytest

from kilonova.services.volume.packing import AT_ONCE, CLUSTER, PER_BLOCK, PER_TABLE, Packing
from kilonova.services.volume.qcow2 import Qcow2

LETTERS = b"x" * (AT_ONCE * CLUSTER)


class Sparse(io.RawIOBase):
    """A disk of many gigabytes that holds one letter everywhere."""

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset

    def read(self, size: int = -1) -> bytes:
        return LETTERS[:size]


def test_the_tables_of_a_large_disk_name_every_cluster_once() -> None:
    """Extents that begin and end within clusters, touch, and cross the border of two tables."""
    border = PER_TABLE * CLUSTER
    extents = [(0, 1), (1, 2 * CLUSTER + 1), (border - 1, border + 1), (5 * border + 7, 5 * border + 8)]
    image, made = Packing(Sparse(), 40 * border, extents), b""  # type: ignore[arg-type]
    for piece in image.pieces():
        made += piece
    found = Qcow2.open(io.BytesIO(made))
    wanted = [0, 1, 2, PER_TABLE - 1, PER_TABLE, 5 * PER_TABLE]
    assert [at // CLUSTER for at, _ in found.pieces()] == wanted


@pytest.mark.parametrize("held", [1, PER_TABLE - 1, PER_TABLE, PER_TABLE + 1, 32759, 32760, 32761])
def test_an_image_has_no_table_and_no_count_that_it_does_not_need(held: int) -> None:
    """Also where the data end at the border of a table, and where the image ends at the border of its counts."""
    image = Packing(Sparse(), 40 * PER_TABLE * CLUSTER, [(0, held * CLUSTER)])  # type: ignore[arg-type]
    clusters, left_over = divmod(sum(map(len, image.pieces())), CLUSTER)
    head, first_level, counts, tables = 1, 1, 1, -(-held // PER_TABLE)
    blocks = clusters - (head + first_level + counts + tables + held)
    assert left_over == 0 and (blocks - 1) * PER_BLOCK < clusters - 1 and clusters <= blocks * PER_BLOCK


def test_an_empty_disk_has_no_tables() -> None:
    image = b"".join(Packing(io.BytesIO(), 0, []).pieces())
    assert len(image) == 3 * CLUSTER and list(Qcow2.open(io.BytesIO(image)).pieces()) == []
