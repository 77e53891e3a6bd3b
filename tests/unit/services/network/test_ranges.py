"""Free addresses as ranges: what is taken and given back joins and splits them, beside those of other subnets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kilonova.schema.tables.network import free_ranges
from kilonova.services.network.addresses import address_of
from kilonova.services.network.ranges import fill, give_back, take, take_lowest
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import play

Act = Callable[[Tx], Awaitable[object]]
OTHERS = ("0", "t")  # subnets with the same addresses and one more, sorted before and after it


def taking(number: int) -> Act:
    return lambda tx: take(tx, "s", address_of(f"0.0.0.{number}"))


def giving(number: int) -> Act:
    return lambda tx: give_back(tx, "s", address_of(f"0.0.0.{number}"))


async def lowest(tx: Tx) -> object:
    return await take_lowest(tx, "s")


def keys(*ranges: tuple[int, int]) -> list[tuple[str, str]]:
    return [(f"{first:08x}", f"{last:08x}") for first, last in ranges]


@pytest.mark.parametrize(
    ("before", "act", "after"),
    [
        ([(2, 4), (7, 9)], lowest, [(3, 4), (7, 9)]),
        ([(2, 2), (7, 9)], lowest, [(7, 9)]),
        ([], lowest, []),
        ([(2, 4), (7, 9)], taking(2), [(3, 4), (7, 9)]),
        ([(2, 4), (7, 9)], taking(3), [(2, 2), (4, 4), (7, 9)]),
        ([(2, 4), (7, 9)], taking(4), [(2, 3), (7, 9)]),
        ([(2, 4), (7, 9)], taking(8), [(2, 4), (7, 7), (9, 9)]),
        ([(2, 4), (7, 7)], taking(7), [(2, 4)]),
        ([(2, 4), (7, 9)], taking(1), [(2, 4), (7, 9)]),
        ([(2, 4), (7, 9)], taking(5), [(2, 4), (7, 9)]),
        ([(2, 4), (7, 9)], taking(10), [(2, 4), (7, 9)]),
        ([(2, 4), (7, 9)], giving(1), [(1, 4), (7, 9)]),
        ([(2, 4), (7, 9)], giving(5), [(2, 5), (7, 9)]),
        ([(2, 4), (7, 9)], giving(6), [(2, 4), (6, 9)]),
        ([(2, 4), (6, 9)], giving(5), [(2, 9)]),
        ([(2, 3), (7, 9)], giving(5), [(2, 3), (5, 5), (7, 9)]),
        ([(2, 4), (7, 9)], giving(11), [(2, 4), (7, 9), (11, 11)]),
        ([(2, 4), (7, 9)], giving(4), [(2, 4), (7, 9)]),
        ([(2, 4), (7, 9)], giving(3), [(2, 4), (7, 9)]),
        ([(2, 4), (7, 9)], giving(2), [(2, 4), (7, 9)]),
        ([], giving(5), [(5, 5)]),
        ([(2, 4)], lambda tx: fill(tx, "s", keys((5, 6), (8, 8))), [(5, 6), (8, 8)]),
    ],
)
def test_free_ranges(tmp_path: Path, before: list[tuple[int, int]], act: Act, after: list[tuple[int, int]]) -> None:
    async def body(tx: Tx) -> None:
        others = [(subnet, *each) for subnet in OTHERS for each in keys((0, 0), *before)]
        for subnet, first, last in [*others, *(("s", *each) for each in keys(*before))]:
            await rows.put(tx, free_ranges, subnet_id=subnet, first=first, last=last)
        given = await act(tx)
        if act is lowest:
            assert given == (address_of(f"0.0.0.{before[0][0]}") if before else None)
        left = sorted(tuple(row) for row in await rows.fetch_all(tx, free_ranges))
        assert left == sorted([*others, *(("s", *each) for each in keys(*after))])

    play(tmp_path, body, "control")
