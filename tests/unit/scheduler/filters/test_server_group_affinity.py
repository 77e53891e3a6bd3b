"""ServerGroupAffinityFilter."""

from __future__ import annotations

from kilonova.placement.groups import GroupRule
from kilonova.scheduler.filters.server_group_affinity import ServerGroupAffinityFilter
from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import asked, big, passing, said

HOSTS = {"a": big(), "b": big()}
REQUEST = asked(group=GroupRule("g", "affinity"))


def test_where_the_group_is() -> None:
    around = Surroundings({"p-b": frozenset({"s1"})})
    assert passing(ServerGroupAffinityFilter, HOSTS, REQUEST, around=around) == ["b"]
    assert said(ServerGroupAffinityFilter, HOSTS, REQUEST, "a", around=around) == (
        "affinity group g has 0 there, its servers are elsewhere"
    )


def test_the_first_one_goes_anywhere() -> None:
    assert passing(ServerGroupAffinityFilter, HOSTS, REQUEST) == ["a", "b"]
    assert passing(ServerGroupAffinityFilter, HOSTS, asked()) == ["a", "b"]


def test_the_only_one_of_its_group_may_go_anywhere() -> None:
    request = asked(group=GroupRule("g", "affinity"), server="s1")
    around = Surroundings({"p-b": frozenset({"s1"})})
    assert passing(ServerGroupAffinityFilter, HOSTS, request, around=around) == ["a", "b"]
