"""RAMWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.ram import RAMWeigher
from tests.unit.scheduler.worlds import aggregate, settings, sized, weights

HOSTS = {"a": sized(memory_mb=1000), "b": sized(memory_mb=3000), "c": sized(memory_mb=2000)}


def test_free_memory() -> None:
    assert weights(RAMWeigher, HOSTS) == [0.0, 1.0, 0.5]
    assert weights(RAMWeigher, HOSTS, by=settings(ram_weight_multiplier=-2.0)) == [0.0, -2.0, -1.0]


def test_aggregates_may_weigh_otherwise() -> None:
    inside = [aggregate(1, "b", ram_weight_multiplier="5"), aggregate(2, "b", ram_weight_multiplier="3")]
    assert weights(RAMWeigher, HOSTS, aggregates=inside) == [0.0, 3.0, 0.5]
