"""What a finding says, and which reports are clean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.audit.differences import Difference
from kilonova.audit.findings import Finding, FindingShare, Miscounted, Places, Report, Unbalanced, finding_of
from kilonova.audit.reading import Reading, ServerVersion

EMPTY = Report(
    began=0.0,
    ended=1.0,
    consumers=1,
    busy=1,
    findings=[],
    unbalanced=[],
    miscounted=[],
    unknown=["m"],
    unreachable={"cell1": "why"},
    foreign=["x"],
    silent=["host1"],
)
FINDING = Finding("s", "s", "orphan", "s holds 1 VCPU on host1, owns nothing", [], [], ServerVersion(None, None, None))
ONE, TWO = {"VCPU": 1, "MEMORY_MB": 2}, {"VCPU": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"findings": [FINDING]},
        {"unbalanced": [Unbalanced("host1", "VCPU", 1, 2)]},
        {"miscounted": [Miscounted("p", "u", {}, {})]},
        {"hardware": ["CPU 1 is given to s and to t"]},
        {"abandoned": ["build on host1 was abandoned"]},
        {"differences": [Difference("guest_off", "s", "host1", "is off")]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_report_with_anything_wrong_is_not_clean(wrong: dict[str, Any]) -> None:
    """What is only not known, or not ours, is not wrong."""
    assert EMPTY.is_clean
    assert not msgspec.structs.replace(EMPTY, **wrong).is_clean


@pytest.mark.parametrize(
    ("holds", "owns", "kind", "sentence"),
    [
        ({("host1", ""): ONE}, {}, "orphan", "s holds 2 MEMORY_MB 1 VCPU on host1, owns nothing"),
        ({}, {("host1", ""): ONE}, "missing", "s holds nothing, owns 2 MEMORY_MB 1 VCPU on host1"),
        (
            {("host2", "move"): TWO, ("host1", ""): ONE},
            {("host1", ""): ONE},
            "excess",
            "s holds 2 MEMORY_MB 1 VCPU on host1, 2 VCPU on host2 for move, owns 2 MEMORY_MB 1 VCPU on host1",
        ),
        (
            {("host1", ""): TWO},
            {("host1", ""): ONE},
            "different",
            "s holds 2 VCPU on host1, owns 2 MEMORY_MB 1 VCPU on host1",
        ),
    ],
)
def test_a_finding_says_what_is_held_and_what_is_owned(holds: Places, owns: Places, kind: str, sentence: str) -> None:
    reading = Reading(
        held={"s": holds}, expected={"s": owns}, turns={"s": 3}, fences={"s": (3, 2)}, generations={"s": 7}
    )
    finding = finding_of(reading, "s")
    assert (finding.consumer, finding.server, finding.kind, finding.sentence) == ("s", "s", kind, sentence)
    for places, shares in ((holds, finding.holds), (owns, finding.owns)):
        assert shares == [FindingShare(host, places[host, holder], holder) for host, holder in sorted(places)]
    assert finding.proof == ServerVersion(3, (3, 2), 7)
