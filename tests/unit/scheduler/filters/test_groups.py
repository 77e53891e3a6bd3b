"""Filters by servers of the same group."""

from __future__ import annotations

from kilonova.placement.groups import GroupRule
from kilonova.scheduler.filters.groups import ServerGroupAffinityFilter, ServerGroupAntiAffinityFilter
from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import asked, big, passing, said

HOSTS = {"a": big(), "b": big(), "c": big()}
AROUND = Surroundings({"p-a": frozenset({"s1", "s2"}), "p-b": frozenset({"s3"})})


def group(most: int = 1, policy: str = "anti-affinity") -> GroupRule:
    return GroupRule("g", policy, most)


def test_as_many_as_the_group_allows() -> None:
    assert passing(ServerGroupAntiAffinityFilter, HOSTS, asked(group=group()), around=AROUND) == ["c"]
    assert passing(ServerGroupAntiAffinityFilter, HOSTS, asked(group=group(2)), around=AROUND) == ["b", "c"]
    assert passing(ServerGroupAntiAffinityFilter, HOSTS, asked(group=group(1, "affinity")), around=AROUND) == [
        *("a", "b", "c")
    ]


def test_the_server_itself_does_not_count() -> None:
    request = asked(group=group(), server="s3")
    assert passing(ServerGroupAntiAffinityFilter, HOSTS, request, around=AROUND) == ["b", "c"]


def test_the_sentence_counts() -> None:
    words = said(ServerGroupAntiAffinityFilter, HOSTS, asked(group=group()), "a", around=AROUND)
    assert words == "anti-affinity group g has 2 there and allows 1"


TWO = {"a": big(), "b": big()}
REQUEST = asked(group=GroupRule("g", "affinity"))


def test_where_the_group_is() -> None:
    around = Surroundings({"p-b": frozenset({"s1"})})
    assert passing(ServerGroupAffinityFilter, TWO, REQUEST, around=around) == ["b"]
    assert said(ServerGroupAffinityFilter, TWO, REQUEST, "a", around=around) == (
        "affinity group g has 0 there, its servers are elsewhere"
    )


def test_the_first_one_goes_anywhere() -> None:
    assert passing(ServerGroupAffinityFilter, TWO, REQUEST) == ["a", "b"]
    assert passing(ServerGroupAffinityFilter, TWO, asked()) == ["a", "b"]


def test_the_only_one_of_its_group_may_go_anywhere() -> None:
    request = asked(group=GroupRule("g", "affinity"), server="s1")
    around = Surroundings({"p-b": frozenset({"s1"})})
    assert passing(ServerGroupAffinityFilter, TWO, request, around=around) == ["a", "b"]
