"""What `kilonova explain` prints of a decision."""

from __future__ import annotations

import msgspec

from kilonova.cli.explain import told
from tests.unit.scheduler.worlds import big, choose, sized


def test_a_refusal_ends_with_what_would_help() -> None:
    decision = choose({"a": sized(memory_mb=4092), "b": big(state="disabled")})
    assert told(msgspec.to_builtins(decision)) == [
        "chosen: none",
        "b  ComputeFilter: the host is disabled: b is disabled",
        "a  capacity: needs 4096 MB, 4092 free of 4092",
        "it would fit with: enable b",
        "it would fit with: a flavor with at most 4092 MB",
        "it would fit with: 4 MB more memory free on a",
    ]


def test_a_choice() -> None:
    decision = choose({"a": big(), "b": big(), "c": big(state="down")})
    assert told(msgspec.to_builtins(decision)) == [
        "chosen: a",
        "alternates: b",
        "a  passes every filter",
        "b  passes every filter",
        "c  ComputeFilter: the host is down: c is down",
    ]
