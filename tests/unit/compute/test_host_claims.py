"""A claim is kept before it is told, found again by the next agent, and given up with its copy."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.compute.host_claims import HostClaims
from kilonova.domain.errors import Failed
from kilonova.domain.guest import CopyReport
from kilonova.domain.hardware import HardwareRequest, HostHardware
from tests.unit.domain.machines import cell, host, pinned, pinning


class Memory:
    """`world.HostMemory` that outlives its agents."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.writes = 0

    def load(self) -> dict[str, Any]:
        return dict(self.kept)

    def keep(self, name: str, value: Any) -> None:
        self.kept[name] = value
        self.writes += 1

    def drop(self, name: str) -> None:
        self.kept.pop(name, None)


MACHINE = host(cell(0, 2))
ONE, TWO = pinned(1), pinned(2)


def agent(memory: Memory, hardware: HostHardware = MACHINE) -> HostClaims:
    claims = HostClaims(memory, memory.load())
    claims.hardware = hardware
    return claims


def test_taken_once_however_often_it_is_asked_for() -> None:
    memory = Memory()
    first = agent(memory).take("a", 1, ONE)
    assert agent(memory).take("a", 1, ONE) == first, "the next agent finds it"
    assert agent(memory).take("b", 1, ONE) != first
    assert sorted(memory.kept) == ["claim/a/1", "claim/b/1"]
    assert memory.writes == 2, "what is stored already is not written again: each write waits for the disk"


def test_a_claim_is_found_among_what_else_a_host_remembers() -> None:
    memory = Memory()
    first = agent(memory).take("a", 1, ONE)
    memory.keep("key", "secret")
    memory.keep("5b1e/2", [3, 1])
    assert agent(memory).of("a", 1) == first
    assert agent(memory).with_claims([]) == [CopyReport("a", 1, "absent", whole=False, defined=False, claim=first)]


def test_nothing_fits_before_the_hardware_is_known() -> None:
    with pytest.raises(Failed, match="does not fit"):
        HostClaims(Memory(), {}).take("a", 1, ONE)


def test_a_plain_guest_takes_nothing() -> None:
    memory = Memory()
    assert agent(memory).take("a", 1, None) is None
    assert agent(memory).take("a", 1, HardwareRequest()) is None
    assert memory.kept == {}


def test_what_does_not_fit_is_for_another_host_and_leaves_nothing() -> None:
    memory = Memory()
    agent(memory).take("a", 1, ONE)
    with pytest.raises(Failed, match="the host's hardware does not fit: cell 0 needs 2 dedicated CPUs, 1 free") as why:
        agent(memory).take("b", 1, TWO)
    assert why.value.elsewhere and not why.value.final
    assert sorted(memory.kept) == ["claim/a/1"]


def test_a_move_on_one_host_holds_both_a_rebuild_the_same() -> None:
    claims = agent(Memory())
    old = claims.take("a", 1, ONE)
    assert claims.take("a", 2, ONE, beside=1) == old
    moved = claims.take("a", 3, ONE)
    assert moved is not None and old is not None and pinning(moved) != pinning(old)
    claims.drop("a", 1)
    with pytest.raises(Failed):
        claims.take("b", 1, ONE)  # copy 2 still holds what copy 1 had
    assert claims.take("a", 3, ONE, beside=1) == moved, "asked again, a copy keeps what it has"
    claims.drop("a", 2)
    assert claims.take("b", 1, ONE) == old


def test_dropped_with_the_copy_and_dropping_twice_is_harmless() -> None:
    memory = Memory()
    claims = agent(memory)
    claims.take("a", 1, TWO)
    for _ in range(2):
        claims.drop("a", 1)
    assert memory.kept == {}
    assert agent(memory).take("b", 1, TWO)


def test_what_a_guest_is_defined_with_counts_where_the_memory_was_lost() -> None:
    held = agent(Memory()).take("a", 1, TWO)
    memory = Memory()
    claims = agent(memory)
    (told,) = claims.with_claims([CopyReport("a", 1, "on", whole=True, claim=held)])
    assert (told.claim, sorted(memory.kept)) == (held, ["claim/a/1"])
    with pytest.raises(Failed):
        claims.take("b", 1, ONE)


def test_what_the_host_remembers_counts_before_what_a_guest_is_defined_with() -> None:
    """An operation changes the memory first; a guest that was not defined again yet shows its old share."""
    other = agent(Memory()).take("a", 1, ONE)
    memory = Memory()
    claims = agent(memory)
    held = claims.take("a", 1, TWO)
    (report,) = claims.with_claims([CopyReport("a", 1, "on", whole=True, claim=other)])
    assert (report.claim, claims.of("a", 1), memory.writes) == (held, held, 1)


def test_a_claim_without_a_copy_is_told_so_that_somebody_decides() -> None:
    memory = Memory()
    claims = agent(memory)
    held = claims.take("a", 1, ONE)
    plain = CopyReport("b", 1, "on", whole=True)
    told = claims.with_claims([plain])
    assert (claims.of("b", 1), sorted(memory.kept)) == (None, ["claim/a/1"]), "a plain guest holds nothing"
    assert told == [plain, CopyReport("a", 1, "absent", whole=False, defined=False, claim=held)]
