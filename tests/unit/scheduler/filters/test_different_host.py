"""DifferentHostFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.different_host import DifferentHostFilter
from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import asked, big, passing, said

HOSTS = {"a": big(), "b": big(), "c": big()}
AROUND = Surroundings(hosts={"s1": "a", "s2": "b"})


def test_not_beside_the_named_servers() -> None:
    hints = {"different_host": ["s1", "s9"]}
    assert passing(DifferentHostFilter, HOSTS, asked(hints=hints), around=AROUND) == ["b", "c"]
    both = {"different_host": ["s1,s2"]}
    assert passing(DifferentHostFilter, HOSTS, asked(hints=both), around=AROUND) == ["c"]
    assert passing(DifferentHostFilter, HOSTS, asked(), around=AROUND) == ["a", "b", "c"]
    assert said(DifferentHostFilter, HOSTS, asked(hints=hints), "a", around=AROUND) == "server s1 is there"
