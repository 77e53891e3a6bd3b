"""SQLite with threads: many transactions, one COMMIT, and what happens when that one fails."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown, Conflict, StoreError
from kilonova.world import Tx
from tests.store.conftest import Workbench
from tests.store.scratch import ids, insert, inserting

ROOT = Path(__file__).parents[2]


async def ask_in_one_batch(store: Any, *bodies: Any) -> list[Any]:
    """Who asks in the same turn of the loop shares a COMMIT."""
    return await asyncio.gather(*(store.write(body) for body in bodies), return_exceptions=True)


def test_concurrent_writes_share_commits(sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        before = store.stats.commits
        await asyncio.gather(*(store.write(inserting(f"t{number:03}")) for number in range(200)))
        assert store.stats.commits - before < 50
        assert store.stats.transactions >= 200
        assert len(await ids(store)) == 200

    sqlite_bench.run(story)


def test_a_batch_is_one_commit(sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        before = store.stats.commits
        await ask_in_one_batch(store, *(inserting(f"t{number}") for number in range(30)))
        assert store.stats.commits - before == 1

    sqlite_bench.run(story)


def test_a_body_that_raises_takes_only_its_own_writes_along(sqlite_bench: Workbench) -> None:
    """The others of its batch run a second time, and are written once."""
    calls: list[str] = []

    def counted(name: str, error: Exception | None = None) -> Any:
        async def body(tx: Tx) -> str:
            calls.append(name)
            await insert(tx, name)
            if error is not None:
                raise error
            return name

        return body

    async def story(store: Any) -> None:
        before = store.stats.transactions
        bodies = counted("a"), counted("b", ValueError("mine alone")), counted("c"), inserting("a")
        results = await ask_in_one_batch(store, *bodies)
        assert [type(result) for result in results] == [str, ValueError, str, Conflict]
        assert calls == ["a", "b", "a", "b", "c"]
        assert store.stats.transactions - before == 2
        assert await ids(store) == ["a", "c"]

    sqlite_bench.run(story)


def test_a_failing_shared_commit_fails_its_callers_and_nobody_else(sqlite_bench: Workbench) -> None:
    async def failing(tx: Tx) -> None:
        raise ValueError("mine alone")

    async def story(store: Any) -> None:
        await store.write(inserting("before"))
        results = await ask_in_one_batch(
            store, inserting("a"), inserting("orphan", owner="nobody"), failing, inserting("b")
        )
        assert [type(result) for result in results] == [CommitFailed, CommitFailed, ValueError, CommitFailed]
        assert len({id(result) for result in results}) == 4  # nobody shares an exception with its traceback
        await store.write(inserting("after"))
        assert await ids(store) == ["after", "before"]

    sqlite_bench.run(story)


def test_an_io_error_in_the_shared_commit(sqlite_bench: Workbench) -> None:
    """The file may not grow: the operating system refuses the write that COMMIT makes. An I/O error proves nothing
    (tests/store/test_disk_errors.py), and nobody's write is seen."""

    async def story(store: Any) -> None:
        await store.write(inserting("before"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = os.stat(sqlite_bench.url.removeprefix("sqlite:///") + "-wal").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (log + 100, hard))
        try:
            results = await asyncio.gather(
                *(store.write(inserting(f"t{number}")) for number in range(10)), return_exceptions=True
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert {type(result) for result in results} == {CommitUnknown}
        await store.write(inserting("after"))
        assert await ids(store) == ["after", "before"]

    sqlite_bench.run(story)


def test_a_full_disk_fails_the_batch_and_nobody_else(sqlite_bench: Workbench) -> None:
    async def big(tx: Tx) -> None:
        await insert(tx, "big" * 100_000)

    async def story(store: Any) -> None:
        connection = store._writer.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages + 5}")
        small, large = await ask_in_one_batch(store, inserting("small"), big)
        assert isinstance(large, StoreError) and "full" in str(large)
        # SQLite may drop the whole transaction or only the statement; either way the answer is the truth.
        assert ("small" in await ids(store)) == (small == "small")
        connection.execute("PRAGMA max_page_count=1000000")
        await store.write(big)
        await store.write(inserting("after"))
        assert "after" in await ids(store)

    sqlite_bench.run(story)


def test_settings_of_durability_are_read_back(any_sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        connection = store._writer.connection
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"

    any_sqlite_bench.run(story)


def test_a_body_that_awaits_something_else(any_sqlite_bench: Workbench) -> None:
    async def body(tx: Tx) -> None:
        await insert(tx, "a")
        await asyncio.sleep(0)

    async def story(store: Any) -> None:
        for asked in (store.write(body), store.read(lambda tx: asyncio.sleep(0))):
            with pytest.raises(RuntimeError, match="awaits nothing but its tx"):
                await asked
        await store.write(inserting("b"))
        assert await ids(store) == ["b"]

    any_sqlite_bench.run(story)


def test_whatever_a_body_raises_the_writer_lives_on(sqlite_bench: Workbench) -> None:
    class Odd(BaseException):
        pass

    async def odd(tx: Tx) -> None:
        raise Odd

    async def story(store: Any) -> None:
        results = await ask_in_one_batch(store, odd, inserting("a"))
        assert isinstance(results[0], Odd) and results[1] == "a"

    sqlite_bench.run(story)


def test_another_process_writes_and_the_loop_goes_on(sqlite_bench: Workbench) -> None:
    """Who waits for a lock waits in the thread; when it is free, everything asked meanwhile is written."""

    async def story(store: Any) -> None:
        other = sqlite3.connect(sqlite_bench.url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        asked = [asyncio.create_task(store.write(inserting(f"t{number}"))) for number in range(3)]
        turns = 0
        for _ in range(50):
            await asyncio.sleep(0.001)
            turns += 1
        assert turns == 50 and not any(task.done() for task in asked)
        other.execute("ROLLBACK")
        other.close()
        assert await asyncio.gather(*asked) == ["t0", "t1", "t2"]

    sqlite_bench.run(story)


def test_who_asks_during_a_commit_makes_the_next_batch(sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        before, statements = store.stats.commits, store.stats.statements
        first = asyncio.create_task(store.write(inserting("first")))
        while store.stats.statements == statements:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        later = [asyncio.create_task(store.write(inserting(f"t{number}"))) for number in range(20)]
        await asyncio.gather(first, *later)
        assert store.stats.commits - before == 2

    sqlite_bench.run(story)


def test_what_changes_nothing_waits_for_no_disk(sqlite_bench: Workbench) -> None:
    async def looks(tx: Tx) -> int:
        return 7

    async def story(store: Any) -> None:
        store._writes._thread.shutdown()
        assert await store.write(looks) == 7

    sqlite_bench.run(story)


def test_closing_does_what_was_asked_before(sqlite_bench: Workbench) -> None:
    async def story(store: Any) -> None:
        asked = [asyncio.create_task(store.write(inserting(f"t{number}"))) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*asked)) == 50

    sqlite_bench.run(story)


WRITER = """
import asyncio, os, sys
from tests.store.conftest import Workbench
from tests.store.scratch import inserting

async def main(store):
    async def write(lane):
        for number in range(1_000_000):
            thing = f"{sys.argv[2]}-{lane}-{number}"
            await store.write(inserting(thing))
            os.write(1, (thing + "\\n").encode())
    await asyncio.gather(*(write(lane) for lane in range(16)))

bench = Workbench("sqlite", sys.argv[1])
asyncio.run(main(bench.open()))
"""


def test_kill_9_loses_nothing_that_was_acknowledged(sqlite_bench: Workbench) -> None:
    async def prepare(store: Any) -> None:
        pass

    sqlite_bench.run(prepare)
    acknowledged: set[str] = set()
    for turn in range(3):
        command = [sys.executable, "-c", WRITER, sqlite_bench.url, f"run{turn}"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            acknowledged |= {process.stdout.readline().decode().strip() for _ in range(300)}
            process.kill()
            acknowledged |= {line for line in process.stdout.read().decode().split("\n")[:-1] if line}

    async def look() -> None:
        store = sqlite_bench.open()
        assert acknowledged <= set(await ids(store))
        assert store._writer.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        await store.close()

    assert len(acknowledged) >= 900
    asyncio.run(look())
