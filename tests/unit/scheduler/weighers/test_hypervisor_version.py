"""HypervisorVersionWeigher."""

from __future__ import annotations

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.weighers.hypervisor_version import HypervisorVersionWeigher
from tests.unit.scheduler.worlds import big, weights


def test_newer_first() -> None:
    hosts = {name: big(hypervisor=Hypervisor("kvm", version)) for name, version in (("a", 5), ("b", 9), ("c", 6))}
    assert weights(HypervisorVersionWeigher, hosts) == [0.0, 1.0, 0.25]
    assert weights(HypervisorVersionWeigher, {"a": big(), "b": big()}) == [0.0, 0.0]
