"""What `kilonova explain` prints of a decision."""

from __future__ import annotations

import msgspec

from kilonova.cli.explain import lines
from kilonova.scheduler.report import decision_lines
from tests.unit.scheduler.worlds import big, choose, sized


def test_a_refusal_ends_with_what_would_help() -> None:
    decision = choose({"a": sized(memory_mb=4092), "b": big(state="disabled")})
    assert decision_lines(msgspec.to_builtins(decision)) == [
        "chosen: none",
        "b  ComputeFilter: the host is disabled: b is disabled",
        "a  capacity: needs 4096 MB, 4092 free of 4092",
        "it would fit with: enable b",
        "it would fit with: a flavor with at most 4092 MB",
        "it would fit with: 4 MB more memory free on a",
    ]


def test_a_choice() -> None:
    decision = choose({"a": big(), "b": big(), "c": big(state="down")})
    assert decision_lines(msgspec.to_builtins(decision)) == [
        "chosen: a (weight 0); 1 other host weighs the same; the first by name",
        "alternates: b (weight 0)",
        "a  passes every filter",
        "b  passes every filter",
        "c  ComputeFilter: the host is down: c is down",
    ]


def test_of_many_hosts_each_filter_is_told_once_with_the_nearest_as_its_example() -> None:
    hosts = {f"h{n:02}": sized(memory_mb=4095 - n) for n in range(30)} | {"off": big(state="disabled")}
    decision = msgspec.to_builtins(choose(hosts))
    assert decision_lines(decision) == [
        "chosen: none",
        "0 of 31 hosts fit",
        "capacity rejects 30, the nearest h00: needs 4096 MB, 4095 free of 4095",
        "ComputeFilter rejects 1, the nearest off: the host is disabled: off is disabled",
        "off  ComputeFilter: the host is disabled: off is disabled",
        *(f"h{n:02}  capacity: needs 4096 MB, {4095 - n} free of {4095 - n}" for n in range(4)),
        "and 26 more hosts that are stored; --whole shows them",
        "it would fit with: enable off",
        "it would fit with: a flavor with at most 4095 MB",
        "it would fit with: 1 MB more memory free on h00",
    ]
    assert len(decision_lines(decision, whole=True)) == 1 + 31 + 3


def test_each_attempt_is_told_with_what_became_of_it() -> None:
    first, second = (msgspec.to_builtins(choose({"a": big(), "b": big(state=word)})) for word in ("up", "down"))
    problem = {"code": "driver", "message": "ensure_disk failed on a", "step": "build_and_run_instance"}
    found = {"operation": "o1", "decision": second, "problem": None}
    assert lines({**found, "earlier": [{"decision": first, "problem": problem}]}) == [
        "operation o1",
        "  attempt 1",
        "    chosen: a (weight 0); 1 other host weighs the same; the first by name",
        "    alternates: b (weight 0)",
        "    a  passes every filter",
        "    b  passes every filter",
        "    failed at build_and_run_instance: ensure_disk failed on a",
        "  attempt 2",
        "    chosen: a (weight 0); the only host that fits",
        "    a  passes every filter",
        "    b  ComputeFilter: the host is down: b is down",
    ]
    assert lines({**found, "earlier": []})[1] == "  chosen: a (weight 0); the only host that fits"
    assert lines({**found, "earlier": [], "old_disk": "removed first"})[-1] == "  old disk: removed first"
    assert lines({**found, "earlier": [], "decision": None}) == ["operation o1", "  it chose no host"]
