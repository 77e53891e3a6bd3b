"""Which candidate is the first that fits, and why those before it do not; by numbers alone."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.placement.capacity import ClassCapacity, HostCandidate, ProviderCapacity, first_fitting
from kilonova.placement.groups import GroupPlacement, GroupRule
from kilonova.placement.ledger import Rows
from kilonova.placement.outcomes import Refusal

HOST, POOL, CLOSED = 1, 2, 3
VCPU, DISK = 11, 12
APART = GroupPlacement("s", GroupRule("g", "anti-affinity"), others={HOST: {"t"}})
NO_GROUP = GroupPlacement("s")


def capacities(**values: int) -> dict[str, ProviderCapacity]:
    """The host has 8 VCPU, 5 of them used, in units of 1 to 6; the pool has 100 GB in units of 10."""
    vcpu = {"capacity": 8, "used": 5, "min_unit": 1, "max_unit": 6, "step_size": 1, **values}
    disk = ClassCapacity(DISK, capacity=100, used=0, min_unit=10, max_unit=50, step_size=10)
    return {
        "host": ProviderCapacity(HOST, "host", HOST, True, {"VCPU": ClassCapacity(VCPU, **vcpu)}),
        "pool": ProviderCapacity(POOL, "pool", POOL, True, {"DISK_GB": disk}),
        "closed": ProviderCapacity(CLOSED, "closed", CLOSED, False, {"VCPU": ClassCapacity(VCPU, **vcpu)}),
    }


def on(provider: str, vcpu: int = 0, disk: int = 0, pool: str = "pool") -> HostCandidate:
    return HostCandidate(provider, {"VCPU": vcpu}, {pool: {"DISK_GB": disk}} if disk else {})


def text(refusal: Refusal) -> str:
    return f"{refusal.reason} {refusal.sentence}"


FREE = "over_capacity provider host: needs {} VCPU, 3 free of 8"
TAKEN: list[tuple[HostCandidate, Rows, Rows]] = [  # asked for, held before, held then
    (on("host", 3), {}, {(HOST, VCPU, ""): 3}),
    (on("host", 2, 50), {}, {(HOST, VCPU, ""): 2, (POOL, DISK, ""): 50}),
    (on("host"), {}, {}),
    (on("host", 6), {(HOST, VCPU, ""): 3}, {(HOST, VCPU, ""): 6}),  # it gives back what it has
    (on("host", 6), {(HOST, VCPU, ""): 9}, {(HOST, VCPU, ""): 6}),
    (on("closed", 3), {(CLOSED, VCPU, ""): 3}, {(CLOSED, VCPU, ""): 3}),  # no more than before
    (on("closed", 2), {(CLOSED, VCPU, ""): 3}, {(CLOSED, VCPU, ""): 2}),
]
REFUSED: list[tuple[HostCandidate, Rows, str]] = [
    (on("nobody", 1), {}, "no_such_provider there is no provider nobody"),
    (on("host", 1, 10, "nobody"), {}, "no_such_provider there is no provider nobody"),
    (on("pool", 1), {}, "no_inventory provider pool has no VCPU"),
    (on("host", 4), {}, FREE.format(4)),
    (on("host", 6), {(HOST, VCPU, ""): 2}, FREE.format(4)),
    (on("host", 6), {(POOL, VCPU, ""): 3}, FREE.format(6)),  # it has that elsewhere
    (on("host", 6), {(HOST, DISK, ""): 3}, FREE.format(6)),  # of another class
    (on("host", 7), {(HOST, VCPU, ""): 6}, "wrong_unit provider host: VCPU 7 is more than one consumer may hold, 6"),
    (on("host", 1, 5), {}, "wrong_unit provider pool: DISK_GB 5 is less than the smallest amount given out, 10"),
    (on("host", 1, 15), {}, "wrong_unit provider pool: DISK_GB 15 is not a multiple of 10"),
    (on("closed", 1), {}, "not_accepting provider closed accepts no new claims"),
    (on("closed", 0, 10), {}, "not_accepting provider closed accepts no new claims"),
    (on("closed", 4), {(CLOSED, VCPU, ""): 3}, "not_accepting provider closed accepts no new claims"),
]


@pytest.mark.parametrize(("candidate", "own", "rows"), TAKEN, ids=str)
def test_what_fits_is_taken(candidate: HostCandidate, own: Rows, rows: Rows) -> None:
    known = capacities()
    choice = first_fitting([candidate, on("host", 1)], known, NO_GROUP, own)
    assert (choice.capacity, choice.rows, choice.refused) == (known[candidate.provider], rows, [])


@pytest.mark.parametrize(("candidate", "own", "why"), REFUSED, ids=str)
def test_what_does_not_fit_is_refused_and_the_next_is_tried(candidate: HostCandidate, own: Rows, why: str) -> None:
    choice = first_fitting([candidate, on("pool", 0, 10)], capacities(), NO_GROUP, own)
    assert [text(refusal) for refusal in choice.refused] == [why]
    assert choice.capacity is not None and choice.capacity.uuid == "pool"
    alone = first_fitting([candidate], capacities(), NO_GROUP, own)
    assert (alone.capacity, alone.rows) == (None, {}) and [text(refusal) for refusal in alone.refused] == [why]


@pytest.mark.parametrize(
    ("values", "wanted", "numbers"),
    [
        ({}, 4, Refusal("host", "over_capacity", "provider host: needs 4 VCPU, 3 free of 8", "VCPU", 4, 5, 8)),
        ({"used": 9}, 1, Refusal("host", "over_capacity", "provider host: needs 1 VCPU, 0 free of 8", "VCPU", 1, 9, 8)),
    ],
)
def test_a_refusal_has_the_numbers(values: dict[str, int], wanted: int, numbers: Refusal) -> None:
    assert first_fitting([on("host", wanted)], capacities(**values), NO_GROUP).refused == [numbers]


def test_a_group_is_asked_before_anything_else() -> None:
    choice: Any = first_fitting([on("host", 99), on("closed", 99), on("pool", 0, 10)], capacities(), APART)
    assert [refusal.reason for refusal in choice.refused] == ["group", "over_capacity"]
    assert choice.refused[0].sentence == "provider host: anti-affinity group g already has 1 there and allows 1"
    assert choice.capacity.uuid == "pool"
