"""NumInstancesWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.num_instances import NumInstancesWeigher
from tests.unit.scheduler.worlds import big, settings, weights


def test_how_many_there_are() -> None:
    hosts = {"a": big(servers=1), "b": big(servers=2), "c": big(servers=3)}
    assert weights(NumInstancesWeigher, hosts) == [0.0, 0.0, 0.0]
    assert weights(NumInstancesWeigher, hosts, by=settings(num_instances_weight_multiplier=2.0)) == [0.0, 1.0, 2.0]
    assert weights(NumInstancesWeigher, {"a": big(), "b": big()}, by=settings(num_instances_weight_multiplier=2.0)) == [
        0.0,
        0.0,
    ]
