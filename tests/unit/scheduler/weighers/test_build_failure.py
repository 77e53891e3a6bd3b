"""BuildFailureWeigher."""

from __future__ import annotations

from kilonova.scheduler.weighers.build_failure import BuildFailureWeigher
from tests.unit.scheduler.worlds import big, choose, sized, weights


def test_failures_outweigh_everything() -> None:
    assert weights(BuildFailureWeigher, {"a": big(failed=2), "b": big(failed=1), "c": big()}) == [
        0.0,
        500000.0,
        1000000.0,
    ]
    chosen = choose({"large": big(failed=1), "small": sized(vcpus=4, memory_mb=8192, disk_gb=40)}).chosen
    assert chosen is not None and chosen.host == "small"
