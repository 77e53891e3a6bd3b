"""When a confirmation is refused because its destination does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.operations.confirm_resize import CHECKED, LIVING_SOURCE, ConfirmResize
from kilonova.operations.facts import ResizeFacts
from tests.unit.operations.moved import moved

UP = HostState("host2", "up", "host2 answered 1 s ago")
UNKNOWN = HostState("host2", "unknown", "host2 may be alive")
SILENT = HostState("host2", "down", "host2 has been silent for 61 s")
DECLARED = HostState("host2", "down", "host2 was declared down", declared=True)


def check(host: HostState, **move: Any) -> ResizeFacts:
    return ConfirmResize().check(moved(host, **move))


@pytest.mark.parametrize("host", [UP, UNKNOWN])
def test_the_destination_is_asked_for_its_copy(host: HostState) -> None:
    facts = check(host)
    assert [target.host for target in CHECKED.targets(facts)] == ["host2"]
    assert [target.host for target in LIVING_SOURCE.targets(facts)] == ["host1"]


@pytest.mark.parametrize("host", [SILENT, DECLARED])
def test_a_destination_that_is_down_keeps_the_source(host: HostState) -> None:
    with pytest.raises(Refused, match="revert the migration") as refused:
        check(host)
    assert refused.value.code == "host_down" and "host2" not in refused.value.message


def test_nothing_is_kept_for_a_source_that_is_gone() -> None:
    facts = check(DECLARED, source_gone=1)
    assert list(CHECKED.targets(facts)) == [] and list(LIVING_SOURCE.targets(facts)) == []


def test_both_copies_on_one_dead_host_can_be_confirmed_to_be_evacuated() -> None:
    facts = check(DECLARED, source_host="host2")
    assert list(CHECKED.targets(facts)) == []
    assert [(target.host, target.copy) for target in LIVING_SOURCE.targets(facts)] == [("host2", 1)]
    with pytest.raises(Refused):
        check(SILENT, source_host="host2")


@pytest.mark.parametrize("status", ["finished", "confirming", "reverting"])
def test_what_was_abandoned_is_confirmed_again(status: str) -> None:
    assert check(UP, status=status).migration == "m"


def test_what_is_still_moving_is_not_confirmed() -> None:
    with pytest.raises(Refused, match="has not been resized"):
        check(UP, status="post-migrating")
