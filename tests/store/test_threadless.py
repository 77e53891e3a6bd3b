"""SQLite without threads: where a simulated process may die, and what the next one finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kilonova.domain.errors import StoreError
from kilonova.world import Tx
from tests.store import scratch
from tests.store.conftest import Workbench
from tests.store.scratch import ids, insert, inserting


def suspended(coroutine: Any, times: int) -> Any:
    """Runs up to the `times`-th await that suspends, and leaves it there."""
    for _ in range(times):
        coroutine.send(None)
    return coroutine


@pytest.mark.parametrize(("awaits", "found"), [(1, []), (2, ["a"])])
def test_a_crash_falls_before_the_transaction_or_after_its_commit(
    threadless_bench: Workbench, awaits: int, found: list[str]
) -> None:
    async def story(store: Any) -> None:
        dead = suspended(store.write(inserting("a")), awaits)
        store.drop()
        assert await ids(threadless_bench.open()) == found
        with pytest.raises(StoreError):
            await store.write(inserting("b"))
        with pytest.raises(StoreError):
            await store.read(inserting("b"))
        dead.close()

    threadless_bench.run(story)


def test_a_dropped_process_that_is_run_on_changes_nothing(threadless_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        dead = suspended(store.write(inserting("a")), 1)
        store.drop()
        with pytest.raises(StoreError):
            dead.send(None)
        assert await ids(threadless_bench.open()) == []

    threadless_bench.run(story)


def test_dropping_in_the_middle_of_a_transaction_rolls_it_back(threadless_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        async def body(tx: Tx) -> None:
            await insert(tx, "a")
            store.drop()

        with pytest.raises(StoreError):
            await store.write(body)
        other = threadless_bench.open()
        await other.write(inserting("b"))
        assert await ids(other) == ["b"]

    threadless_bench.run(story)


def test_each_call_passes_the_checkpoints_it_promises(threadless_bench: Workbench) -> None:
    passed: list[str] = []

    async def checkpoint() -> None:
        passed.append("checkpoint")

    async def story(store: Any) -> None:
        passed.clear()
        await store.write(inserting("a"))
        assert len(passed) == 2
        await store.read(inserting_nothing)
        assert len(passed) == 3

    async def inserting_nothing(tx: Tx) -> None:
        passed.append("body") if passed.count("body") else None

    threadless_bench.run(story, checkpoint=checkpoint)


def test_several_processes_share_a_file(threadless_bench: Workbench) -> None:
    async def add(tx: Tx) -> None:
        await tx.run(scratch.ADD_ONE, key="a")

    async def story(store: Any) -> None:
        await store.write(inserting("a", 0))
        stores = [store, *(threadless_bench.open() for _ in range(4))]
        await asyncio.gather(*(each.write(add) for each in stores for _ in range(20)))
        assert await scratch.value_of(stores[-1], "a") == 100

    threadless_bench.run(story)


def test_dropping_a_store_with_threads_answers_nobody(sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        await store.write(inserting("a"))
        store.drop()
        with pytest.raises(StoreError):
            await store.write(inserting("b"))
        assert await ids(sqlite_bench.open()) == ["a"]

    sqlite_bench.run(story)
