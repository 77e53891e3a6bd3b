"""SameHostFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.same_host import SameHostFilter
from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import asked, big, passing, said

HOSTS = {"a": big(), "b": big()}
AROUND = Surroundings(hosts={"s1": "a"})


def test_beside_one_of_the_named_servers() -> None:
    request = asked(hints={"same_host": ["s1", "s9"]})
    assert passing(SameHostFilter, HOSTS, request, around=AROUND) == ["a"]
    assert passing(SameHostFilter, HOSTS, asked(hints={"same_host": ["s9"]}), around=AROUND) == []
    assert passing(SameHostFilter, HOSTS, asked(), around=AROUND) == ["a", "b"]
    assert said(SameHostFilter, HOSTS, request, "b", around=AROUND) == (
        "none of the servers it must be beside is there"
    )
