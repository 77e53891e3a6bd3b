"""DiskWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.disk import DiskWeigher
from tests.unit.scheduler.worlds import settings, sized, weights


def test_what_is_free() -> None:
    hosts = {"a": sized(disk_gb=40), "b": sized(disk_gb=10), "c": sized(disk_gb=20)}
    assert weights(DiskWeigher, hosts) == [1.0, 0.0, round(1 / 3, 6)]
    assert weights(DiskWeigher, hosts, by=settings(disk_weight_multiplier=-1.0)) == [-1.0, 0.0, round(-1 / 3, 6)]
