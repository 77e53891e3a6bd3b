"""AggregateTypeAffinityFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.aggregate_type_affinity import AggregateTypeAffinityFilter
from tests.unit.scheduler.worlds import REQUEST, aggregate, big, passing, said

HOSTS = {name: big() for name in ("a", "b", "c")}
AGGREGATES = [aggregate(1, "a", instance_type="m1, m2"), aggregate(2, "b", instance_type="m3")]


def test_hosts_of_a_flavor() -> None:
    assert REQUEST.flavor.name == "m1"
    assert passing(AggregateTypeAffinityFilter, HOSTS, REQUEST, aggregates=AGGREGATES) == ["a", "c"]
    words = said(AggregateTypeAffinityFilter, HOSTS, REQUEST, "b", aggregates=AGGREGATES)
    assert words == "its aggregates take m3; the flavor is m1"
