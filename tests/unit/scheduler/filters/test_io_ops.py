"""IoOpsFilter."""

from __future__ import annotations

from kilonova.scheduler.filters.io_ops import IoOpsFilter
from tests.unit.scheduler.worlds import REQUEST, big, passing, said, settings

HOSTS = {"a": big(busy=7), "b": big(busy=8)}


def test_fewer_than_allowed() -> None:
    assert passing(IoOpsFilter, HOSTS, REQUEST) == ["a"]
    assert passing(IoOpsFilter, HOSTS, REQUEST, by=settings(max_io_ops_per_host=9)) == ["a", "b"]
    assert said(IoOpsFilter, HOSTS, REQUEST, "b") == "8 servers are being built, moved or saved there, 8 may be"
