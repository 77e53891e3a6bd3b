"""Records of the failure watch by themselves: whose they are, in which state, for how long, and by which clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.schema.tables.failures import failure_watch, host_failures
from kilonova.schema.tables.stores import this_store
from kilonova.settings import HaOptions
from kilonova.store import rows
from kilonova.store.failures import (
    arm,
    begin_failure,
    disarm,
    disarmed,
    fenced_lately,
    is_ahead,
    may_fence,
    newest_failures,
    note_failure,
    open_failures,
    set_back,
    take_failure,
)
from kilonova.store.open_stores import open_store
from kilonova.world import Row, Tx
from tests.support.neighbours import Watched, put_neighbours, zeros

NOW = 1000.0
RULES = HaOptions(automatic=True, storm_hosts=2)
TEXTS = {"cell": "cell1", "evidence": "", "sentence": "", "proof": ""}
FAILURE = {"id": "f", "host": "host1", **TEXTS, "state": "fenced", "open": 1, "worker": "me", "taken_until": NOW + 5}
Run = Callable[[Callable[[Tx], Awaitable[None]]], None]


class StandingClock:
    def now(self) -> float:
        return NOW


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def runs(body: Callable[[Tx], Awaitable[None]]) -> None:
        async def story() -> None:
            store = await open_store("control", f"sqlite:///{tmp_path}/control.db", clock=StandingClock())
            try:
                await store.write(body)
            finally:
                await store.close()

        asyncio.run(story())

    return runs


async def put(tx: Tx, **values: Any) -> Row:
    row = {**FAILURE, **values}
    await rows.put(tx, host_failures, **zeros(host_failures, **row))
    found = await rows.fetch(tx, host_failures, id=row["id"])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "is_free"),
    [
        ({"worker": None, "taken_until": None}, True),
        ({"taken_until": NOW - 1}, True),
        ({}, False),
        ({"taken_until": NOW + 60}, False),
        ({"taken_until": NOW + 61}, True),  # the clock was set back: nobody may hold it for so long
    ],
)
def test_a_record_is_taken_from_nobody_or_from_the_dead(run: Run, given: Any, is_free: bool) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, host_failures, {**FAILURE, "worker": None, "open": None}, id="0")
        failure = await put(tx, **given)
        records = await Watched.since_now(tx, host_failures)
        assert await take_failure(tx, failure, "other", 60.0) is is_free
        assert [row["id"] for row in await records.changed(tx)] == (["f"] if is_free else [])
        taken = await rows.fetch(tx, host_failures, id="f")
        assert taken is not None
        assert not is_free or (taken["worker"], taken["taken_until"]) == ("other", NOW + 60)

    run(body)


def test_a_record_that_went_on_since_is_not_taken(run: Run) -> None:
    async def body(tx: Tx) -> None:
        failure = await put(tx, worker=None)
        await rows.change(tx, host_failures, {"state": "evacuating"}, id="f")
        assert not await take_failure(tx, failure, "other", 60.0)

    run(body)


@pytest.mark.parametrize("state", ["fenced", "returned"])
def test_only_who_has_a_record_writes_it(run: Run, state: str) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, host_failures, {**FAILURE, "open": None}, worker="other", id="0")
        await put(tx)
        records = await Watched.since_now(tx, host_failures)
        assert not await note_failure(tx, "f", "another", state) and await records.changed(tx) == []
        assert await note_failure(tx, "f", "me", state, has_run=state == "fenced")
        assert [row["id"] for row in await records.changed(tx)] == ["f"]
        row = await rows.fetch(tx, host_failures, id="f")
        assert row is not None and (row["worker"], row["taken_until"], row["changed_at"]) == (None, None, NOW)
        assert (row["open"], row["fenced_at"]) == ((1, NOW) if state == "fenced" else (None, None))

    run(body)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"state": "fencing"}, True),
        ({"state": "fencing", "open": None}, False),
        ({"state": "fenced"}, False),
        ({"state": "fenced", "fenced_at": NOW - 599}, True),
        ({"state": "returned", "open": None, "fenced_at": NOW - 599}, True),
        ({"state": "fenced", "fenced_at": NOW - 600}, False),
    ],
)
def test_a_fence_counts_while_it_runs_and_for_a_while(run: Run, given: Any, counts: bool) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, **given)
        assert await fenced_lately(tx, 600.0) == ({"host1"} if counts else set())

    run(body)


def test_no_more_fences_run_than_the_rules_allow(run: Run) -> None:
    """Those of other hosts; and none while somebody has disarmed the watch."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, this_store, **zeros(this_store, id=1))
        await put(tx, state="fencing")
        await put(tx, id="g", host="host2", state="fencing")
        assert not await may_fence(tx, "host3", RULES)
        new = {"id": "n", "host": "host3", "cell": "cell1", "session": "s", "evidence": "silent"}
        assert not await begin_failure(tx, new, "me", 60.0, RULES)
        assert await may_fence(tx, "host2", RULES)
        await disarm(tx, 10.0, "works", "u")
        assert not await may_fence(tx, "host2", RULES)
        await arm(tx)
        assert await may_fence(tx, "host2", RULES)

    run(body)


def test_a_host_has_one_open_record(run: Run) -> None:
    new = {"id": "g", "host": "host1", "cell": "cell1", "session": "s", "evidence": "silent"}

    async def body(tx: Tx) -> None:
        await put(tx, state="done")
        assert not await begin_failure(tx, new, "me", 60.0, RULES)
        await rows.change(tx, host_failures, {"open": None}, id="f")
        assert await begin_failure(tx, new, "me", 60.0, RULES)
        assert not await begin_failure(tx, new, "other", 60.0, RULES)
        (begun,) = await open_failures(tx)
        assert (begun["id"], begun["state"], begun["worker"], begun["taken_until"]) == ("g", "fencing", "me", NOW + 60)

    run(body)


@pytest.mark.parametrize(
    ("seconds", "again", "until"),
    [(None, None, None), (10.0, None, None), (10.0, 20.0, NOW + 20), (20.0, 10.0, NOW + 10), (None, 10.0, None)],
)
def test_a_time_does_not_shorten_a_word_without_an_end(run: Run, seconds: Any, again: Any, until: Any) -> None:
    async def body(tx: Tx) -> None:
        await disarm(tx, seconds, "first", "u")
        await disarm(tx, again, "second", "v")
        word = await disarmed(tx)
        assert word is not None and word.until == until
        assert word.reason == ("first" if seconds is None and again is not None else "second")

    run(body)


@pytest.mark.parametrize(("until", "is_over"), [(NOW, True), (NOW + 1, False), (None, False)])
def test_a_disarmed_watch_is_armed_when_the_time_is_over(run: Run, until: float | None, is_over: bool) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, failure_watch, id=1, until=until, reason="", user_id="", said_at=0.0)
        assert (await disarmed(tx) is None) is is_over

    run(body)


@pytest.mark.parametrize("column", ["changed_at", "fenced_at"])
def test_times_ahead_of_the_clock_are_set_to_now(run: Run, column: str) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, changed_at=NOW, fenced_at=NOW)
        await put(tx, id="g", host="host2", changed_at=NOW - 9, fenced_at=NOW - 9)
        assert not await is_ahead(tx)
        await put(tx, id="h", host="host3", **{"changed_at": NOW - 9, "fenced_at": NOW - 9, column: NOW + 9})
        assert await is_ahead(tx)
        records = await Watched.since_now(tx, host_failures)
        await set_back(tx)
        assert [row["id"] for row in await records.changed(tx)] == ["h"]
        row = await rows.fetch(tx, host_failures, id="h")
        other = {"changed_at": "fenced_at", "fenced_at": "changed_at"}[column]
        assert row is not None and (row[column], row[other]) == (NOW, NOW - 9)

    run(body)


def test_the_newest_records_are_shown_first_whether_open_or_not(run: Run) -> None:
    async def body(tx: Tx) -> None:
        for number in range(25):
            await put(tx, id=f"f{number:02}", host=f"host{number}", created_at=float(number), open=number % 2 or None)
        assert [row["id"] for row in await newest_failures(tx)] == [f"f{number:02}" for number in range(24, 4, -1)]

    run(body)
