"""Allocations against what the records say is owned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilonova.domain.owned import OpenEvacuation, OpenMigration, OwningServer, Size, owned
from kilonova.placement import books as records
from tests.placement.books import LARGE, SMALL, Books

Run = Callable[[Any], None]
SMALL_SIZE, LARGE_SIZE = Size(1, 1024, 10), Size(4, 4096, 40)


def test_what_is_held_is_what_is_owned(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c", "d")
        await books.claim("s1", "a")
        assert await books.held() == owned(OwningServer("s1", "a", SMALL_SIZE))
        await books.claim_move("s1", "m1", "b", size=LARGE)
        moved = OwningServer("s1", "b", LARGE_SIZE)
        assert await books.held() == owned(moved, [OpenMigration("m1", "a", SMALL_SIZE)])
        await books.drop_move("s1", "m1")
        await books.claim_evacuation("s1", "e1", "c", size=LARGE)
        await books.claim_evacuation("s1", "e2", "d", size=LARGE)
        away = OwningServer("s1", "d", LARGE_SIZE)
        evacuations = [OpenEvacuation("e1", "b", LARGE_SIZE), OpenEvacuation("e2", "c", LARGE_SIZE)]
        assert await books.held() == owned(away, open_evacuations=evacuations)
        await books.release("s1")
        assert await books.held() == owned(OwningServer("s1", None, LARGE_SIZE)) == {}

    run(story)


def test_rows_carry_uuids_and_names(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        await books.claim("s1", "a", size={"VCPU": 2})
        rows = await books.store.read(records.read_allocations)
        assert rows == [records.AllocationRow("s1", "provider-of-a", "a", "VCPU", "", 2)]

    run(story)


def test_a_size_without_a_disk_owns_none() -> None:
    assert Size(1, 512, 0).resources() == {"VCPU": 1, "MEMORY_MB": 512}
    assert owned(OwningServer("s1", "a", Size(0, 0, 0))) == {}
    assert SMALL_SIZE.resources() == SMALL
