"""What every store promises, on SQLite with threads, SQLite without, and PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sqlalchemy import select, text

from kilonova.domain.errors import CommitFailed, CommitUnknown, Conflict, StoreError
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Store, Tx
from tests.store import scratch
from tests.store.conftest import Workbench
from tests.store.scratch import ids, insert, inserting, things, value_of


def test_a_write_returns_what_its_body_returns_and_is_read_back(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        assert await store.write(inserting("a", 5)) == "a"
        assert await value_of(store, "a") == 5
        assert await value_of(store, "b") is None

    bench.run(story)


def test_what_one_body_raises_is_its_own(bench: Workbench) -> None:
    async def failing(tx: Tx) -> None:
        await insert(tx, "half")
        raise ValueError("mine alone")

    async def story(store: Store) -> None:
        bodies = [inserting(f"a{number}") for number in range(5)] + [failing] + [inserting("b")]
        results = await asyncio.gather(*(store.write(body) for body in bodies), return_exceptions=True)
        assert [str(result) for result in results] == ["a0", "a1", "a2", "a3", "a4", "mine alone", "b"]
        assert isinstance(results[5], ValueError)
        assert await ids(store) == ["a0", "a1", "a2", "a3", "a4", "b"]

    bench.run(story)


def test_a_commit_that_fails_leaves_nothing_and_the_store_goes_on(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        with pytest.raises(CommitFailed):
            await store.write(inserting("orphan", owner="nobody"))
        assert await ids(store) == []
        await store.write(inserting("a"))
        assert await ids(store) == ["a"]

    bench.run(story)


def test_a_broken_constraint_is_a_conflict(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.write(inserting("a", 1))
        with pytest.raises(Conflict):
            await store.write(inserting("a", 2))
        assert await value_of(store, "a") == 1

    bench.run(story)


def test_a_statement_that_cannot_be_run(bench: Workbench) -> None:
    """The database's own words, not a lost connection; and the same kind of error on both engines."""

    async def wrong_table(tx: Tx) -> None:
        await tx.run(Sql(text("UPDATE nothings SET value = 1")))

    async def wrong_type(tx: Tx) -> None:
        await tx.run(scratch.SET_IF, key=object(), old=1, new=2)

    async def story(store: Store) -> None:
        for body in (wrong_table, wrong_type):
            with pytest.raises(StoreError) as caught:
                await store.write(body)
            assert not isinstance(caught.value, CommitFailed)
            assert "lost" not in str(caught.value)
        await store.write(inserting("a"))

    bench.run(story)


def test_one_of_fifty_wins_a_compare_and_set(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.write(inserting("a", 0))

        def contend(number: int) -> Any:
            async def body(tx: Tx) -> int:
                return await tx.run(scratch.SET_IF, key="a", old=0, new=number)

            return store.write(body)

        changed = await asyncio.gather(*(contend(number) for number in range(1, 51)))
        assert sorted(changed) == [0] * 49 + [1]
        assert await value_of(store, "a") == changed.index(1) + 1

    bench.run(story)


def test_no_update_is_lost(bench: Workbench) -> None:
    async def add(tx: Tx) -> None:
        await tx.run(scratch.ADD_ONE, key="a")

    async def story(store: Store) -> None:
        await store.write(inserting("a", 0))
        await asyncio.gather(*(store.write(add) for _ in range(50)))
        assert await value_of(store, "a") == 50

    bench.run(story)


def test_lists_of_any_length(bench: Workbench) -> None:
    async def body(tx: Tx) -> None:
        await tx.many(scratch.INSERT, [{"id": f"t{n}", "value": n, "owner": None, "mark": None} for n in range(9)])
        for wanted in (["t1", "t3", "gone"], ["t2"], []):
            rows = await tx.all(scratch.SOME, ids=wanted)
            assert [row["id"] for row in rows] == [thing for thing in wanted if thing != "gone"]
        assert [row["id"] for row in await tx.all(scratch.SOME_VALUES, values=[4, 5])] == ["t4", "t5"]

    async def story(store: Store) -> None:
        await store.write(body)

    bench.run(story)


def test_constants_and_counts(bench: Workbench) -> None:
    async def body(tx: Tx) -> None:
        await insert(tx, "a", 1)
        await insert(tx, "b", 2, owner="a")
        assert await tx.run(scratch.FORGET_OWNER, key="b") == 1
        row = await tx.one(scratch.BY_ID, id="b")
        assert row is not None and (row["owner"], row["value"]) == (None, 7)
        assert sorted(row.keys()) == ["id", "mark", "owner", "value"]
        assert await tx.run(scratch.FORGET_OWNER, key="gone") == 0
        assert await tx.run(scratch.ADD_ONE_RETURNING, below=100) == 2
        assert await tx.run(scratch.BY_ID, id="a") == 0
        first = await tx.one(scratch.ADD_ONE_RETURNING, below=3)
        assert first is not None and first["id"] == "a"

    async def story(store: Store) -> None:
        await store.write(body)

    bench.run(story)


def test_a_read_sees_one_snapshot(bench: Workbench) -> None:
    """Between its two statements others commit; it does not notice."""

    async def story(store: Store) -> None:
        await store.write(inserting("a"))
        other = bench.open()

        async def body(tx: Tx) -> tuple[int, int]:
            first = len(await tx.all(scratch.ALL))
            if bench.kind == "postgres":
                await other.write(inserting("b"))
            else:
                other._writer.run([inserting("b")])
            return first, len(await tx.all(scratch.ALL))

        assert await store.read(body) == (1, 1)
        assert await ids(store) == ["a", "b"]

    bench.run(story)


def test_a_read_may_not_write(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        with pytest.raises(StoreError):
            await store.read(inserting("a"))
        assert await ids(store) == []
        await store.write(inserting("b"))

    bench.run(story)


def test_now_is_seconds_since_the_epoch(bench: Workbench) -> None:
    async def body(tx: Tx) -> float:
        return await tx.now()

    async def story(store: Store) -> None:
        assert abs(await store.write(body) - time.time()) < 5

    bench.run(story)


def test_the_database_stamps_rows_and_judges_by_its_own_clock(bench: Workbench) -> None:
    """Without a question for the time: `stamped` columns and `database_time()` in a condition (law 16)."""
    past = Sql(select(things.c.id).where(things.c.mark <= database_time()).order_by(things.c.id))

    async def story(store: Any) -> None:
        async def body(tx: Tx) -> tuple[float, Any]:
            await rows.put(tx, things, ("mark",), id="put", value=0)
            await rows.put(tx, things, id="ahead", value=0, mark=int(await tx.now()) + 3600)
            await rows.put(tx, things, id="changed", value=0, mark=0)
            await rows.change(tx, things, {"value": 1}, ("mark",), id="changed")
            return await tx.now(), await rows.fetch(tx, things, id="changed")

        now, changed = await store.write(body)
        assert changed["value"] == 1 and abs(changed["mark"] - now) < 5
        await asyncio.sleep(1.0)  # PostgreSQL rounds to a whole number, perhaps up
        assert [row["id"] for row in await store.read(lambda tx: tx.all(past))] == ["changed", "put"]

    bench.run(story)


def test_rows_committed_after_a_watermark_carry_no_smaller_mark(bench: Workbench) -> None:
    seen = 0

    def marked(thing: str) -> Any:
        async def body(tx: Tx) -> int:
            mark = await tx.mark()
            assert await tx.mark() == mark
            await insert(tx, thing, mark=mark)
            return mark

        return body

    async def watermark(tx: Tx) -> int:
        row = await tx.one(scratch.WATERMARK)
        assert row is not None
        number: int = row["watermark"]
        return number

    async def since(tx: Tx) -> list[str]:
        return [row["id"] for row in await tx.all(scratch.SINCE, since=seen)]

    async def story(store: Store) -> None:
        nonlocal seen
        first = await store.write(marked("a"))
        async with asyncio.timeout(30):  # whoever else writes on this server holds it back for as long
            while (seen := await store.read(watermark)) <= first:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert await store.read(since) == []
        assert await store.write(marked("b")) >= seen
        assert await store.write(watermark) > seen
        assert await store.read(since) == ["b"]

    bench.run(story)


def test_a_cancelled_caller_harms_nobody(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        tasks = [asyncio.create_task(store.write(inserting(f"t{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
        assert results[1::2] == [f"t{number}" for number in range(1, 20, 2)]
        await asyncio.gather(*(store.write(inserting(f"u{number}")) for number in range(20)))
        assert {f"t{number}" for number in range(1, 20, 2)} <= set(await ids(store))

    bench.run(story)


def test_a_closed_store_says_so(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await store.close()
        for asked in (store.write(inserting("a")), store.read(inserting("a"))):
            with pytest.raises(StoreError, match="closed"):
                await asked

    bench.run(story)


class Faults:
    before: Exception | None = None
    after: Exception | None = None

    def before_commit(self, store_name: str) -> None:
        if self.before is not None:
            raise self.before

    def after_commit(self, store_name: str) -> None:
        if self.after is not None:
            raise self.after


def test_injected_faults(bench: Workbench) -> None:
    """What is put around a store: a commit that fails for sure, and one that is only said to be unknown."""

    async def story(store: Any) -> None:
        faults = Faults()
        store = FaultyStore(store, faults=faults)
        faults.before = CommitFailed("injected")
        with pytest.raises(CommitFailed):
            await store.write(inserting("a"))
        faults.before, faults.after = None, CommitUnknown("injected")
        with pytest.raises(CommitUnknown):
            await store.write(inserting("b"))
        faults.after = None
        assert await ids(store) == ["b"]

    bench.run(story)
