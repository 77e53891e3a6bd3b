"""MetricsFilter."""

from __future__ import annotations

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.filters.metrics import MetricsFilter
from kilonova.settings import MetricsOptions, Settings
from tests.unit.scheduler.worlds import REQUEST, big, passing, said

HOSTS = {"a": big(hypervisor=Hypervisor(metrics={"cpu.percent": 10.0})), "b": big()}


def test_hosts_that_measure() -> None:
    by = Settings(metrics=MetricsOptions(weight_setting=("cpu.percent=-1",)))
    assert passing(MetricsFilter, HOSTS, REQUEST, by=by) == ["a"]
    assert passing(MetricsFilter, HOSTS, REQUEST) == ["a", "b"]
    assert said(MetricsFilter, HOSTS, REQUEST, "b", by=by) == "it reports no cpu.percent"
