"""NumInstancesFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.num_instances import NumInstancesFilter
from tests.unit.scheduler.worlds import REQUEST, big, passing, said, settings

HOSTS = {"a": big(servers=49), "b": big(servers=50)}


def test_fewer_than_allowed() -> None:
    assert passing(NumInstancesFilter, HOSTS, REQUEST) == ["a"]
    assert passing(NumInstancesFilter, HOSTS, REQUEST, by=settings(max_instances_per_host=10)) == []
    assert said(NumInstancesFilter, HOSTS, REQUEST, "b") == "has 50 servers, 50 may be there"
