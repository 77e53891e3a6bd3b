"""IoOpsWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.io_ops import IoOpsWeigher
from tests.unit.scheduler.worlds import big, settings, weights


def test_how_many_there_are() -> None:
    hosts = {"a": big(busy=1), "b": big(busy=2), "c": big(busy=3)}
    assert weights(IoOpsWeigher, hosts) == [-0.0, -0.5, -1.0]
    assert weights(IoOpsWeigher, hosts, by=settings(io_ops_weight_multiplier=2.0)) == [0.0, 1.0, 2.0]
    assert weights(IoOpsWeigher, {"a": big(), "b": big()}, by=settings(io_ops_weight_multiplier=2.0)) == [0.0, 0.0]
