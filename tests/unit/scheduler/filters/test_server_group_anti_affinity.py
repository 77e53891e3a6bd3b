"""ServerGroupAntiAffinityFilter."""

from __future__ import annotations

from kilonova.placement.groups import GroupRule
from kilonova.scheduler.filters.server_group_anti_affinity import ServerGroupAntiAffinityFilter
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
