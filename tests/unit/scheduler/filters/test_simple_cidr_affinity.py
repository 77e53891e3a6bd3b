"""SimpleCIDRAffinityFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.simple_cidr_affinity import SimpleCIDRAffinityFilter
from tests.unit.scheduler.worlds import asked, big, passing, said

HOSTS = {"a": big(address="10.0.1.7"), "b": big(address="10.0.2.7"), "c": big()}


def test_hosts_of_a_network() -> None:
    near = {"build_near_host_ip": ["10.0.1.1"]}
    assert passing(SimpleCIDRAffinityFilter, HOSTS, asked(hints=near)) == ["a"]
    assert passing(SimpleCIDRAffinityFilter, HOSTS, asked(hints=near | {"cidr": ["/16"]})) == ["a", "b"]
    assert passing(SimpleCIDRAffinityFilter, HOSTS, asked(hints=near | {"cidr": ["99"]})) == []
    assert passing(SimpleCIDRAffinityFilter, HOSTS, asked()) == ["a", "b", "c"]
    words = said(SimpleCIDRAffinityFilter, HOSTS, asked(hints=near), "b")
    assert words == "its address 10.0.2.7 is not in 10.0.1.0/24"
