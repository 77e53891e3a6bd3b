"""AggregateInstanceExtraSpecsFilter."""

from __future__ import annotations

import pytest

from kilonova.scheduler.filters.aggregate_instance_extra_specs import AggregateInstanceExtraSpecsFilter
from tests.unit.scheduler.worlds import aggregate, big, passing, said, with_specs

HOSTS = {name: big() for name in ("a", "b", "c")}
AGGREGATES = [aggregate(1, "a", "b", ssd="yes", cores="8"), aggregate(2, "b", ssd="fast,faster")]


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"ssd": "yes"}, ["a", "b"]),
        ({"ssd": "faster"}, ["b"]),
        ({"aggregate_instance_extra_specs__cores": ">= 8"}, ["a", "b"]),
        ({"aggregate_instance_extra_specs__cores": ">= 9"}, []),
        ({"ssd": "!"}, ["c"]),
        ({"hw__cpu_policy": "dedicated"}, ["a", "b", "c"]),
    ],
)
def test_flavors_and_aggregates(specs: dict[str, str], expected: list[str]) -> None:
    assert passing(AggregateInstanceExtraSpecsFilter, HOSTS, with_specs(**specs), aggregates=AGGREGATES) == expected


def test_the_sentence_has_both() -> None:
    words = said(AggregateInstanceExtraSpecsFilter, HOSTS, with_specs(ssd="slow"), "b", aggregates=AGGREGATES)
    assert words == "the flavor asks for ssd 'slow', its aggregates say fast, faster, yes"
