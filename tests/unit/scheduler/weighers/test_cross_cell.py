"""CrossCellWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.cross_cell import CrossCellWeigher
from tests.unit.scheduler.worlds import asked, big, weights


def test_its_own_cell_first() -> None:
    hosts = {"a": big(cell="one"), "b": big(cell="two")}
    assert weights(CrossCellWeigher, hosts, asked(from_cell="two")) == [0.0, 1000000.0]
    assert weights(CrossCellWeigher, hosts) == [0.0, 0.0]
