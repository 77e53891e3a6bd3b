"""What only PostgreSQL can do to a store: lose the connection at the worst moment, commit late, deadlock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from kilonova.domain.errors import CommitFailed, CommitUnknown, StoreError, Unreachable
from kilonova.store.postgres import PostgresStore
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.store import scratch
from tests.store.conftest import Workbench
from tests.store.proxy import CuttingProxy
from tests.store.scratch import ids, insert, inserting, value_of

SLEEP = Sql(text("SELECT pg_sleep(60)"))
pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("word", "deliver", "expected", "found"),
    [
        (b"COMMIT\0", True, CommitUnknown, ["a"]),
        (b"COMMIT\0", False, CommitUnknown, []),
        (b"INSERT", True, Unreachable, []),
        (b"INSERT", False, Unreachable, []),
        (b"BEGIN", False, Unreachable, []),
    ],
)
def test_a_line_that_is_cut(
    postgres_bench: Workbench, word: bytes, deliver: bool, expected: type[Exception], found: list[str]
) -> None:
    """Only a cut during COMMIT is unknown; re-reading then tells the truth (law 12). Before it, nothing is in."""

    async def story(store: Any) -> None:
        async with CuttingProxy(postgres_bench.url) as proxy:
            through = PostgresStore("placement", proxy.url)
            await through.read(inserting_nothing)
            proxy.cut_at(word, deliver=deliver)
            with pytest.raises(expected) as caught:
                await through.write(inserting("a"))
            assert type(caught.value) is expected
            assert proxy.cuts == 1
            assert await ids(through) == found
            await through.write(inserting("b"))
            assert await ids(store) == [*found, "b"]
            await through.close()

    postgres_bench.run(story)


async def inserting_nothing(tx: Tx) -> None:
    await tx.now()


def test_a_late_commit_of_an_older_transaction_is_found_from_the_watermark(postgres_bench: Workbench) -> None:
    took_its_mark, may_commit = asyncio.Event(), asyncio.Event()

    async def late(tx: Tx) -> int:
        mark = await tx.mark()
        await insert(tx, "late", mark=mark)
        took_its_mark.set()
        await may_commit.wait()
        return mark

    async def quick(tx: Tx) -> int:
        mark = await tx.mark()
        await insert(tx, "quick", mark=mark)
        return mark

    async def sync(tx: Tx) -> tuple[int, list[str]]:
        row = await tx.one(scratch.WATERMARK)
        assert row is not None
        return row["watermark"], [row["id"] for row in await tx.all(scratch.SINCE, since=0)]

    async def story(store: Any) -> None:
        older = asyncio.create_task(store.write(late))
        await took_its_mark.wait()
        newer_mark = await store.write(quick)
        watermark, seen = await store.read(sync)
        may_commit.set()
        older_mark = await older
        assert older_mark < newer_mark and seen == ["quick"]

        async def again(tx: Tx) -> list[str]:
            return [row["id"] for row in await tx.all(scratch.SINCE, since=watermark)]

        assert "late" in await store.read(again)

    postgres_bench.run(story)


def test_a_deadlock_is_tried_again(postgres_bench: Workbench) -> None:
    tries: list[str] = []

    async def story(store: Any) -> None:
        await store.write(inserting("a"))
        await store.write(inserting("b"))
        both_hold_one = asyncio.Barrier(2)

        def crossing(first: str, second: str) -> Any:
            async def body(tx: Tx) -> None:
                again = first in tries
                tries.append(first)
                await tx.run(scratch.ADD_ONE, key=first)
                if not again:
                    await both_hold_one.wait()
                await tx.run(scratch.ADD_ONE, key=second)

            return store.write(body)

        await asyncio.gather(crossing("a", "b"), crossing("b", "a"))
        assert len(tries) == 3
        assert [await value_of(store, thing) for thing in "ab"] == [2, 2]

    postgres_bench.run(story)


def test_giving_way_is_bounded(postgres_bench: Workbench) -> None:
    import asyncpg

    tries = 0

    async def unlucky(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        raise asyncpg.SerializationError("could not serialize access")

    async def story(store: Any) -> None:
        with pytest.raises(CommitFailed, match="rolled back"):
            await store.write(unlucky)
        assert 2 < tries < 20

    postgres_bench.run(story)


def test_a_body_that_swallowed_an_error_does_not_pass_for_committed(postgres_bench: Workbench) -> None:
    async def swallowing(tx: Tx) -> None:
        await insert(tx, "a")
        with contextlib.suppress(Exception):
            await insert(tx, "a")

    async def story(store: Any) -> None:
        with pytest.raises(CommitFailed):
            await store.write(swallowing)
        assert await ids(store) == []

    postgres_bench.run(story)


def test_cancelling_a_body_gives_its_connection_back(postgres_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        entered = asyncio.Event()

        async def waiting(tx: Tx) -> None:
            await insert(tx, "a")
            entered.set()
            await asyncio.Event().wait()

        for _ in range(3):
            entered.clear()
            task = asyncio.create_task(store.write(waiting))
            await entered.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.write(inserting("b"))
        assert await ids(store) == ["b"]

    postgres_bench.run(story, connections=1)


def test_dropping_cuts_every_line_at_once(postgres_bench: Workbench) -> None:
    counted: list[int] = []

    async def story(store: Any) -> None:
        entered = asyncio.Event()

        async def waiting(tx: Tx) -> None:
            await insert(tx, "a")
            entered.set()
            await tx.run(SLEEP)

        task = asyncio.create_task(store.write(waiting))
        await entered.wait()
        await asyncio.sleep(0.05)
        assert sum(counted) == 1  # the simulator knows that the server is at work
        store.drop()
        assert sum(counted) == 0
        with pytest.raises(StoreError):
            await store.write(inserting("b"))
        other = postgres_bench.open()
        await other.write(inserting("c"))  # the server rolled the dead transaction back: no lock is left
        assert await ids(other) == ["c"]
        await asyncio.gather(task, return_exceptions=True)
        assert sum(counted) == 0

    postgres_bench.run(story, on_io=counted.append)


def test_every_round_trip_is_announced(postgres_bench: Workbench) -> None:
    counted: list[int] = []

    async def story(store: Any) -> None:
        counted.clear()
        await store.write(inserting("a"))
        assert counted == [1, -1] * 3  # BEGIN, INSERT, COMMIT

    postgres_bench.run(story, on_io=counted.append)


async def enough(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in five places
        await asyncio.sleep(0.01)


def test_a_server_that_crashes_and_returns(postgres: Any) -> None:
    """Killed with transactions in flight: each answer is either true or says that it does not know."""
    url = postgres.create_database("store_crash")
    bench = Workbench("postgres", url)

    async def story(store: Any) -> None:
        outcomes: dict[str, Any] = {}

        async def write(thing: str) -> None:
            try:
                outcomes[thing] = await store.write(inserting(thing))
            except StoreError as error:
                outcomes[thing] = error

        async def lane(name: str) -> None:
            for number in range(1000):
                await write(f"{name}{number}")

        lanes = [asyncio.create_task(lane(name)) for name in "abcd"]
        await enough(lambda: len([outcome for outcome in outcomes.values() if isinstance(outcome, str)]) > 100)
        await asyncio.to_thread(postgres.kill9)
        await enough(lambda: len([outcome for outcome in outcomes.values() if not isinstance(outcome, str)]) > 20)
        await asyncio.to_thread(postgres.start)
        for each in lanes:
            each.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        await store.write(inserting("after"))
        found = set(await ids(store))
        assert {thing for thing, outcome in outcomes.items() if isinstance(outcome, str)} <= found
        failed = {thing for thing, outcome in outcomes.items() if isinstance(outcome, CommitFailed)}
        assert failed and not failed & found

    bench.run(story, seconds=60)


def test_an_address_where_nobody_answers() -> None:
    async def story() -> None:
        store = PostgresStore("control", "postgresql://kilonova:secret@127.0.0.1:1/control")
        with pytest.raises(StoreError, match=r"cannot reach .* postgresql://127\.0\.0\.1:1/control") as caught:
            await store.read(inserting_nothing)
        assert "secret" not in str(caught.value)
        with pytest.raises(CommitFailed):
            await store.write(inserting_nothing)

    asyncio.run(story())
