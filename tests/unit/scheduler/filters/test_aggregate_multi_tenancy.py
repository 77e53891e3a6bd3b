"""AggregateMultiTenancyIsolation."""

from __future__ import annotations

from kilonova.scheduler.filters.aggregate_multi_tenancy import AggregateMultiTenancyIsolation
from tests.unit.scheduler.worlds import aggregate, asked, big, passing, said

HOSTS = {name: big() for name in ("a", "b", "c")}
AGGREGATES = [aggregate(1, "a", filter_tenant_id="p1,p2"), aggregate(2, "b", filter_tenant_id3="p3")]


def test_hosts_of_a_project() -> None:
    for project, expected in (("p1", ["a", "c"]), ("p3", ["b", "c"]), ("p9", ["c"])):
        request = asked(project=project)
        assert passing(AggregateMultiTenancyIsolation, HOSTS, request, aggregates=AGGREGATES) == expected
    words = said(AggregateMultiTenancyIsolation, HOSTS, asked(project="p9"), "a", aggregates=AGGREGATES)
    assert words == "its aggregates take 2 projects; p9 is not among them"
