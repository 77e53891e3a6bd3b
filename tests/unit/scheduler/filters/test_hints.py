"""Filters by scheduler hints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kilonova.scheduler.filters.hints import DifferentHostFilter, JsonFilter, SameHostFilter, SimpleCIDRAffinityFilter
from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import asked, big, passing, said, sized

HOSTS = {"a": big(), "b": big(), "c": big()}
AROUND = Surroundings(hosts={"s1": "a", "s2": "b"})


def test_not_beside_the_named_servers() -> None:
    hints = {"different_host": ["s1", "s9"]}
    assert passing(DifferentHostFilter, HOSTS, asked(hints=hints), around=AROUND) == ["b", "c"]
    both = {"different_host": ["s1,s2"]}
    assert passing(DifferentHostFilter, HOSTS, asked(hints=both), around=AROUND) == ["c"]
    assert passing(DifferentHostFilter, HOSTS, asked(), around=AROUND) == ["a", "b", "c"]
    assert said(DifferentHostFilter, HOSTS, asked(hints=hints), "a", around=AROUND) == "server s1 is there"


TWO = {"a": big(), "b": big()}
BESIDE = Surroundings(hosts={"s1": "a"})


def test_beside_one_of_the_named_servers() -> None:
    request = asked(hints={"same_host": ["s1", "s9"]})
    assert passing(SameHostFilter, TWO, request, around=BESIDE) == ["a"]
    assert passing(SameHostFilter, TWO, asked(hints={"same_host": ["s9"]}), around=BESIDE) == []
    assert passing(SameHostFilter, TWO, asked(), around=BESIDE) == ["a", "b"]
    assert said(SameHostFilter, TWO, request, "b", around=BESIDE) == ("none of the servers it must be beside is there")


ADDRESSED = {"a": big(address="10.0.1.7"), "b": big(address="10.0.2.7"), "c": big()}


def test_hosts_of_a_network() -> None:
    near = {"build_near_host_ip": ["10.0.1.1"]}
    assert passing(SimpleCIDRAffinityFilter, ADDRESSED, asked(hints=near)) == ["a"]
    assert passing(SimpleCIDRAffinityFilter, ADDRESSED, asked(hints=near | {"cidr": ["/16"]})) == ["a", "b"]
    assert passing(SimpleCIDRAffinityFilter, ADDRESSED, asked(hints=near | {"cidr": ["99"]})) == []
    assert passing(SimpleCIDRAffinityFilter, ADDRESSED, asked()) == ["a", "b", "c"]
    words = said(SimpleCIDRAffinityFilter, ADDRESSED, asked(hints=near), "b")
    assert words == "its address 10.0.2.7 is not in 10.0.1.0/24"


SIZED = {"a": sized(vcpus=4, memory_mb=1000), "b": sized(vcpus=8, memory_mb=3000)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([">=", "$free_ram_mb", 2000], ["b"]),
        (["and", [">=", "$vcpus_total", 4], ["<", "$free_ram_mb", 2000]], ["a"]),
        (["or", ["=", "$host", "a"], [">", "$vcpus_total", 7]], ["a", "b"]),
        (["not", ["=", "$host", "a"]], ["b"]),
        (["in", "$hypervisor_type", "simulated", "kvm"], ["a", "b"]),
        (["=", "$no_such_thing", 1], []),
        (["=", "$host"], []),
        (["xor", ["=", "$host", "a"]], []),
        ([], []),
    ],
)
def test_questions(query: Any, expected: list[str]) -> None:
    assert passing(JsonFilter, SIZED, asked(hints={"query": [json.dumps(query)]})) == expected


def test_what_is_no_question() -> None:
    broken = asked(hints={"query": ["[1,"]})
    assert passing(JsonFilter, SIZED, broken) == []
    assert said(JsonFilter, SIZED, broken, "a") == "the hint query is not a query in JSON"
    deep = "[" * 50 + "]" * 50
    assert passing(JsonFilter, SIZED, asked(hints={"query": [deep]})) == []
    assert passing(JsonFilter, SIZED, asked()) == ["a", "b"]
