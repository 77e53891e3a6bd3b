"""Allocations against what the records say is owned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilonova.domain.owned import OpenEvacuation, OpenMigration, OwningServer, owned, shares_of
from kilonova.placement import books as records
from kilonova.schema.tables import placement as tables
from kilonova.store import rows
from tests.placement.books import LARGE, SMALL, Books
from tests.placement.neighbourhood import play

Run = Callable[[Any], None]


def test_what_is_held_is_what_is_owned(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c", "d")
        await books.claim("s1", "a")
        assert await books.held() == owned(OwningServer("s1", {"a": SMALL}))
        await books.claim_move("s1", "m1", "b", size=LARGE)
        moved = OwningServer("s1", {"b": LARGE})
        assert await books.held() == owned(moved, [OpenMigration("m1", {"a": SMALL})])
        await books.drop_move("s1", "m1")
        await books.claim_evacuation("s1", "e1", "c", size=LARGE)
        await books.claim_evacuation("s1", "e2", "d", size=LARGE)
        away = OwningServer("s1", {"d": LARGE})
        evacuations = [OpenEvacuation("e1", {"b": LARGE}), OpenEvacuation("e2", {"c": LARGE})]
        assert await books.held() == owned(away, open_evacuations=evacuations)
        await books.release("s1")
        assert await books.held() == owned(OwningServer("s1", {})) == {}

    run(story)


def test_rows_carry_uuids_and_names(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        await books.claim("s1", "a", size={"VCPU": 2})
        rows = await books.store.read(records.read_allocations)
        assert rows == [records.AllocationRow("s1", "provider-of-a", "a", "VCPU", "", 2)]

    run(story)


FLAVOR = '{"name": "f", "vcpus": 1, "memory_mb": 512, "disk_gb": 0, "swap_mb": 1}'


def test_a_record_without_a_claim_means_the_flavor_on_its_host() -> None:
    assert shares_of("a", FLAVOR, None) == {"a": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}
    assert shares_of("a", FLAVOR, '{"a_numa0": {"PCPU": 1}, "pool": {"DISK_GB": 1}}') == {
        "a_numa0": {"PCPU": 1},
        "pool": {"DISK_GB": 1},
    }
    assert shares_of(None, FLAVOR, None) == {} == owned(OwningServer("s1", {"a": {}}))


def test_what_is_held_of_nothing_is_told_by_its_numbers(tmp_path: Path) -> None:
    """A provider or class that is gone, though something of it is still held."""

    async def story(store: Any) -> None:
        row = {"consumer": "s", "provider_id": 99, "class_id": 98, "holder": "", "used": 3, "created_at": 1.0}
        await store.write(lambda tx: rows.put(tx, tables.allocations, **row))
        await store.write(lambda tx: rows.put(tx, tables.allocations, **{**row, "provider_id": 1, "used": 4}))
        assert await store.read(records.balance) == [
            records.Imbalance("a", "98", None, 4),
            records.Imbalance("99", "98", None, 3),
        ]

    play(tmp_path, story)
