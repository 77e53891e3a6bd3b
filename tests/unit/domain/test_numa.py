"""Fitting a guest's cells into a host's: which CPUs it gets, and what is said when it gets none."""

from __future__ import annotations

import pytest

from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware, fit
from kilonova.domain.numa import CellRules, GuestCell
from tests.unit.domain.machines import cell, host, pinned, pinning


def taken(hardware: HostHardware, *wishes: HardwareRequest) -> list[HostClaim]:
    claims: list[HostClaim] = []
    for wish in wishes:
        claim = fit(wish, hardware, claims)
        assert isinstance(claim, HostClaim), claim
        claims.append(claim)
    return claims


def test_the_emptiest_cell_comes_first() -> None:
    two = host(cell(0), cell(1))
    first, second, third = taken(two, pinned(2), pinned(2), pinned(2))
    assert [pinning(claim) for claim in (first, second, third)] == [[{0: 0, 1: 1}], [{0: 4, 1: 5}], [{0: 2, 1: 3}]]


def test_every_guest_cell_has_a_host_cell_of_its_own() -> None:
    (claim,) = taken(host(cell(0, 2), cell(1, 2), cell(2, 2)), pinned(1, 2))
    assert [given.cell for given in claim.cells] == [0, 1]
    assert fit(pinned(1, 1), host(cell(0, 8)), []) == "needs 2 NUMA cells, it has 1"


def test_a_large_cell_is_left_to_who_needs_it() -> None:
    """The first guest cell would take the largest host cell; the second fits only there."""
    (claim,) = taken(HostHardware((cell(0, 2), cell(1, 4))), pinned(1, 3))
    assert [given.cell for given in claim.cells] == [0, 1]


def test_siblings_are_kept_together() -> None:
    hardware = host(cell(0, 8, threads=2))
    one, two = taken(hardware, pinned(1), pinned(4))
    assert (pinning(one), pinning(two)) == ([{0: 0}], [{0: 2, 1: 3, 2: 4, 3: 5}])


@pytest.mark.parametrize(
    ("threads", "policy", "size", "fits"),
    [
        (1, "isolate", 4, True),
        (2, "isolate", 1, False),
        (1, "require", 1, False),
        (2, "require", 4, True),
        (2, "require", 3, True),
        (2, "prefer", 3, True),
    ],
)
def test_thread_policies(threads: int, policy: str, size: int, fits: bool) -> None:
    found = fit(pinned(size, threads=policy), host(cell(0, 4, threads=threads)), [])
    assert isinstance(found, HostClaim) == fits


def test_required_siblings_must_be_free() -> None:
    hardware = host(cell(0, 4, threads=2))
    claims = taken(hardware, pinned(1), pinned(1))
    assert pinning(claims[1]) == [{0: 2}], "the emptier core"
    why = fit(pinned(2, threads="require"), hardware, claims)
    assert why == "cell 0 needs 2 dedicated CPUs on cores with free siblings, 0 free there"


def test_the_emulator_has_a_cpu_beside_the_first_cell() -> None:
    (claim,) = taken(host(cell(0, 4, threads=2), cell(1, 4, threads=2)), pinned(2, 2, emulator="isolate"))
    assert [given.emulator for given in claim.cells] == [(2,), ()]
    assert fit(pinned(4, emulator="isolate"), host(cell()), []) == "cell 0 needs 5 dedicated CPUs, 4 free of 4"


def test_pages() -> None:
    hardware = host(cell(memory_mb=4096, huge=512))

    def page(size: str, memory_mb: int = 1024) -> int | str:
        found = fit(pinned(1, pages=size, memory_mb=memory_mb), hardware, [])
        return found if isinstance(found, str) else found.cells[0].page_kb

    assert [page(size) for size in ("", "small", "large", "any", "2048")] == [4, 4, 2048, 2048, 2048]
    assert page("any", 2048) == 4, "there are only 1024 MB of the large ones"
    assert page("any", 1023) == 4, "no whole number of large ones"
    assert page("large", 2048) == "cell 0 needs 2048 MB, 1024 MB free in pages of 2048 kB"
    assert page("1048576") == "cell 0 needs memory pages of 1048576 kB, it has pages of 4 kB, 2048 kB"
    assert fit(pinned(1, pages="large"), host(cell()), []) == (
        "cell 0 needs memory pages of a large size, it has pages of 4 kB"
    )
    claims = taken(hardware, pinned(1, pages="large", memory_mb=1024))
    assert fit(pinned(1, pages="large", memory_mb=2), hardware, claims) == (
        "cell 0 needs 2 MB, 0 MB free in pages of 2048 kB"
    )


def test_shared_cpus_are_counted_per_cell() -> None:
    hardware = host(cell(0, 2, dedicated=False), cell(1, 2, dedicated=False))
    one = HardwareRequest(cells=(GuestCell((0, 1), (), 64),), rules=CellRules())
    claims = taken(hardware, one, one)
    assert [claim.cells[0].cell for claim in claims] == [0, 1]
    why = fit(one, hardware, claims)
    assert why == "cell 0 needs 2 shared CPUs, 0 free of 2; cell 1 needs 2 shared CPUs, 0 free of 2"


def test_cells_that_fit_one_by_one_may_not_fit_together() -> None:
    hardware = HostHardware((cell(0, 4), cell(1, 4)))
    claims = taken(hardware, pinned(3))
    why = fit(pinned(3, 3), hardware, claims)
    assert why == "needs 2 NUMA cells at a time: cell 0 needs 3 dedicated CPUs, 1 free of 4"
