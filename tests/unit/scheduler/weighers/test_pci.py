"""PCIWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.pci import PCIWeigher
from tests.unit.scheduler.worlds import big, weights


def test_hosts_with_few_devices_first() -> None:
    assert weights(PCIWeigher, {"a": big(devices=0), "b": big(devices=50), "c": big(devices=500)}) == [
        1.0,
        round(49 / 99, 6),
        0.0,
    ]
    assert weights(PCIWeigher, {"a": big(), "b": big()}) == [0.0, 0.0]
