"""MetricsWeigher."""

from __future__ import annotations

import pytest

from kilonova.domain.guest import Hypervisor
from kilonova.scheduler.weighers.metrics import MetricsWeigher
from kilonova.settings import MetricsOptions, Settings
from tests.unit.scheduler.worlds import big, weights

HOSTS = {
    "a": big(hypervisor=Hypervisor(metrics={"cpu": 10.0, "io": 1.0})),
    "b": big(hypervisor=Hypervisor(metrics={"cpu": 20.0, "io": 4.0})),
    "c": big(),
}


@pytest.mark.parametrize(
    ("setting", "required", "expected"),
    [
        (("cpu=1",), True, [0.0, 1.0, 0.0]),
        (("cpu=1", "io=-5"), True, [1.0, 0.0, 0.0]),
        (("cpu=1",), False, [round(10010 / 10020, 6), 1.0, 0.0]),
        ((), True, [0.0, 0.0, 0.0]),
        (("unknown",), True, [0.0, 0.0, 0.0]),
    ],
)
def test_what_hosts_measure(setting: tuple[str, ...], required: bool, expected: list[float]) -> None:
    by = Settings(metrics=MetricsOptions(weight_setting=setting, required=required))
    assert weights(MetricsWeigher, HOSTS, by=by) == expected
