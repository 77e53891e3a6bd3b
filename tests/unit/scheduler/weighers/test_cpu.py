"""CPUWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.cpu import CPUWeigher
from tests.unit.scheduler.worlds import settings, sized, weights


def test_what_is_free() -> None:
    hosts = {"a": sized(vcpus=40), "b": sized(vcpus=10), "c": sized(vcpus=20)}
    assert weights(CPUWeigher, hosts) == [1.0, 0.0, round(1 / 3, 6)]
    assert weights(CPUWeigher, hosts, by=settings(cpu_weight_multiplier=-1.0)) == [-1.0, 0.0, round(-1 / 3, 6)]
