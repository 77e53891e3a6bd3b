"""Reads of a few rows, which an engine may do at once: they see and may do what every read does."""

from __future__ import annotations

import asyncio

import pytest

from kilonova.domain.errors import StoreError
from kilonova.store import rows
from kilonova.world import Store, Tx
from tests.store.conftest import Workbench
from tests.store.scratch import inserting, things


async def values(store: Store, *, few: bool) -> dict[str, int]:
    async def body(tx: Tx) -> dict[str, int]:
        return {row["id"]: row["value"] for row in await rows.fetch_all(tx, things)}

    return await store.read(body, few=few)


def test_they_see_what_was_committed(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        for number in range(5):
            await store.write(inserting(f"thing{number}", number))
            expected = {f"thing{n}": n for n in range(number + 1)}
            assert await values(store, few=True) == await values(store, few=False) == expected

    bench.run(story)


def test_they_see_one_moment_while_others_write(bench: Workbench) -> None:
    """Two rows that are always written together are always seen together."""

    async def pair(tx: Tx) -> tuple[int, int]:
        first, second = await rows.fetch(tx, things, id="a"), await rows.fetch(tx, things, id="b")
        assert first is not None and second is not None
        return first["value"], second["value"]

    async def story(store: Store) -> None:
        async def both(tx: Tx, value: int) -> None:
            for name in ("a", "b"):
                await rows.put_or_change(tx, things, ("value",), id=name, value=value)

        await store.write(lambda tx: both(tx, 0))
        writing = asyncio.gather(*(store.write(lambda tx, n=n: both(tx, n)) for n in range(1, 40)))
        while not writing.done():
            first, second = await store.read(pair, few=True)
            assert first == second
            await asyncio.sleep(0)
        await writing
        assert len(set(await store.read(pair, few=True))) == 1

    bench.run(story)


def test_they_may_not_write(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        with pytest.raises(StoreError):
            await store.read(inserting("a"), few=True)

    bench.run(story)


def test_not_after_the_end(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.close()
        with pytest.raises(StoreError):
            await values(store, few=True)

    bench.run(story)
