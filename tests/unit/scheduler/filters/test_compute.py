"""ComputeFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.compute import ComputeFilter
from tests.unit.scheduler.worlds import REQUEST, big, field_of, passing, said

HOSTS = {"a": big(), "b": big(state="down"), "c": big(state="disabled")}


def test_only_hosts_that_are_up() -> None:
    assert passing(ComputeFilter, HOSTS, REQUEST) == ["a"]
    assert said(ComputeFilter, HOSTS, REQUEST, "a") == "the host is up"
    assert said(ComputeFilter, HOSTS, REQUEST, "b") == "the host is down: b is down"


def test_what_would_help() -> None:
    field = field_of(HOSTS)
    filter_ = ComputeFilter(None)  # type: ignore[arg-type]
    assert [filter_.remedy(field, REQUEST, at) for at in range(3)] == [None, "bring b back", "enable c"]
