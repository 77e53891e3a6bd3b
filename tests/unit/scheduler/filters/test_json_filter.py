"""JsonFilter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kilonova.scheduler.filters.json_filter import JsonFilter
from tests.unit.scheduler.worlds import asked, passing, said, sized

HOSTS = {"a": sized(vcpus=4, memory_mb=1000), "b": sized(vcpus=8, memory_mb=3000)}


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
    assert passing(JsonFilter, HOSTS, asked(hints={"query": [json.dumps(query)]})) == expected


def test_what_is_no_question() -> None:
    broken = asked(hints={"query": ["[1,"]})
    assert passing(JsonFilter, HOSTS, broken) == []
    assert said(JsonFilter, HOSTS, broken, "a") == "the hint query is not a query in JSON"
    deep = "[" * 50 + "]" * 50
    assert passing(JsonFilter, HOSTS, asked(hints={"query": [deep]})) == []
    assert passing(JsonFilter, HOSTS, asked()) == ["a", "b"]
