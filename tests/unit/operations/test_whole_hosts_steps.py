"""Which of the planned servers begin now."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.whole_hosts import PlannedMove
from kilonova.operations.whole_hosts.steps import _ready

FIRST = PlannedMove(server="a", name="a", source="host1", to="host2")
SECOND = PlannedMove(server="b", name="b", source="host2", to="host1", after=["a"])


@pytest.mark.parametrize(
    ("begun", "refused", "begins"),
    [
        ({}, {}, ["a"]),
        ({"a": {"server_id": "a", "live": 1}}, {}, []),
        ({"a": {"server_id": "a", "live": 0}}, {}, ["b"]),
        ({}, {"a": "it is locked"}, ["b"]),
    ],
    ids=["nobody has begun", "the first is under way", "the first has ended", "the first was refused"],
)
def test_who_needs_the_room_of_another_waits_until_that_one_has_left(
    begun: dict[str, Any], refused: dict[str, str], begins: list[str]
) -> None:
    moves = [FIRST, SECOND]
    left = [move for move in moves if move.server not in begun and move.server not in refused]
    assert [move.server for move in _ready(left, begun, refused, moves, 4)] == begins
