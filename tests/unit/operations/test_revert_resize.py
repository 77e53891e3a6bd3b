"""When a revert is refused because its source does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.operations.facts import RevertFacts
from kilonova.operations.revert_resize import CHECKED, CHECKED_AGAIN, RevertResize
from tests.unit.operations.moved import moved

WORDS = ("up", "unknown", "down")


def check(destination: str, source: str, **move: Any) -> RevertFacts:
    host, former = HostState("host2", destination, "host2 …"), HostState("host1", source, "host1 …")
    return RevertResize().check(moved(host, former, **move))


@pytest.mark.parametrize("source", ["up", "unknown"])
@pytest.mark.parametrize("destination", ["up", "unknown"])
def test_the_source_is_asked_for_its_copy(destination: str, source: str) -> None:
    facts = check(destination, source)
    assert [(target.host, target.copy) for target in CHECKED.targets(facts)] == [("host1", 1)]


@pytest.mark.parametrize("destination", ["up", "unknown"])
def test_a_source_that_is_down_keeps_the_destination(destination: str) -> None:
    with pytest.raises(Refused, match="confirm the migration") as refused:
        check(destination, "down")
    assert refused.value.code == "host_down" and "host1" not in refused.value.message


@pytest.mark.parametrize("source", WORDS)
def test_nothing_is_kept_for_a_destination_that_is_down(source: str) -> None:
    assert list(CHECKED.targets(check("down", source))) == []


@pytest.mark.parametrize(
    ("destination", "is_stopped", "asked"),
    [("down", True, [("host1", 1)]), ("down", False, []), ("up", True, []), ("unknown", True, [])],
)
def test_the_source_is_asked_late_where_the_destination_has_answered(
    destination: str, is_stopped: bool, asked: list[tuple[str, int]]
) -> None:
    facts = check(destination, "up")
    facts.destination_stopped = is_stopped
    assert [(target.host, target.copy) for target in CHECKED_AGAIN.targets(facts)] == asked


@pytest.mark.parametrize("source", WORDS)
def test_a_source_that_is_gone_is_never_reverted_to(source: str) -> None:
    with pytest.raises(Refused) as refused:
        check("up", source, source_gone=1)
    assert refused.value.code == "source_gone"
