"""AggregateNumInstancesFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.aggregate_num_instances import AggregateNumInstancesFilter
from tests.unit.scheduler.worlds import REQUEST, aggregate, big, passing, said, settings

HOSTS = {name: big(servers=3) for name in ("a", "b", "c")}
AGGREGATES = [
    aggregate(1, "a", max_instances_per_host="5"),
    aggregate(2, "a", max_instances_per_host="2"),
    aggregate(3, "b", max_instances_per_host="many"),
]


def test_the_least_of_the_aggregates_counts() -> None:
    assert passing(AggregateNumInstancesFilter, HOSTS, REQUEST, aggregates=AGGREGATES) == ["b", "c"]
    by = settings(max_instances_per_host=3)
    assert passing(AggregateNumInstancesFilter, HOSTS, REQUEST, aggregates=AGGREGATES, by=by) == [], (
        "else the configuration's"
    )
    assert said(AggregateNumInstancesFilter, HOSTS, REQUEST, "a", aggregates=AGGREGATES) == (
        "3 servers are there, 2 may be by its aggregates"
    )
