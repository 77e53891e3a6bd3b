"""AggregateIoOpsFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.aggregate_io_ops import AggregateIoOpsFilter
from tests.unit.scheduler.worlds import REQUEST, aggregate, big, passing, said, settings

HOSTS = {name: big(busy=3) for name in ("a", "b", "c")}
AGGREGATES = [
    aggregate(1, "a", max_io_ops_per_host="5"),
    aggregate(2, "a", max_io_ops_per_host="2"),
    aggregate(3, "b", max_io_ops_per_host="many"),
]


def test_the_least_of_the_aggregates_counts() -> None:
    assert passing(AggregateIoOpsFilter, HOSTS, REQUEST, aggregates=AGGREGATES) == ["b", "c"]
    by = settings(max_io_ops_per_host=3)
    assert passing(AggregateIoOpsFilter, HOSTS, REQUEST, aggregates=AGGREGATES, by=by) == [], "else the configuration's"
    assert said(AggregateIoOpsFilter, HOSTS, REQUEST, "a", aggregates=AGGREGATES) == (
        "3 servers are being built, moved or saved there, 2 may be by its aggregates"
    )
