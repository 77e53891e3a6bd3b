"""AllHostsFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.all_hosts import AllHostsFilter
from tests.unit.scheduler.worlds import REQUEST, big, passing, said


def test_every_host() -> None:
    assert passing(AllHostsFilter, {"a": big(), "b": big(state="down")}, REQUEST) == ["a", "b"]
    assert said(AllHostsFilter, {"a": big()}, REQUEST, "a") == "every host passes"
