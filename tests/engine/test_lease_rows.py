"""Whose steps are given back, taken over and handed back, by the rows alone: none of another worker, none of a host,
none that has ended, and none that changed between the look and the write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor.leases import AT_MOST, LISTED_AFTER_DEATH, forget_others, give_back, hand_back, leave, renew
from kilonova.conductor.leases import take_over as take_over_from
from kilonova.schema.tables.control import workers
from kilonova.schema.tables.journal import steps
from kilonova.settings import ConductorOptions, Settings
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Store, Tx
from tests.support.neighbours import Watched, put_neighbours, zeros

NOW, LEASE = 1000.0, 30.0
TEXTS = {"name": "plan", "way": "do", "host": "", "worker": "me", "state": "taken", "open": 1, "taken_at": NOW - LEASE}
STEP = {"operation_id": "o", "ordinal": 1, **TEXTS}
OTHERS = {"host": "host1", "state": "ready", "open": 0}  # a host's, nobody's, and one that has ended
Run = Callable[[Callable[[Any, Store], Awaitable[None]]], None]


class StandingClock:
    def now(self) -> float:
        return NOW


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def runs(story: Callable[[Any, Store], Awaitable[None]]) -> None:
        async def whole() -> None:
            names = ("control", "cell1")
            opened = [
                await open_store(name, f"sqlite:///{tmp_path}/{name}.db", clock=StandingClock()) for name in names
            ]
            db = SimpleNamespace(control=opened[0])
            settings = Settings(conductor=ConductorOptions(lease_seconds=LEASE))
            try:
                await story(SimpleNamespace(worker="me", settings=settings, world=SimpleNamespace(db=db)), opened[1])
            finally:
                for store in opened:
                    await store.close()

        asyncio.run(whole())

    return runs


async def put_steps(journal: Store, step: dict[str, Any] = STEP, **others: Any) -> Watched:
    async def body(tx: Tx) -> Watched:
        await put_neighbours(tx, steps, step, **{**OTHERS, **others})
        await rows.put(tx, steps, **zeros(steps, **step))
        return await Watched.since_now(tx, steps)

    return await journal.write(body)


async def changed(journal: Store, before: Watched) -> list[tuple[str, int]]:
    return [(row["operation_id"], row["ordinal"]) for row in await journal.read(before.changed)]


@pytest.mark.parametrize(
    ("taken_at", "is_lost"), [(NOW - LEASE, True), (NOW - LEASE + 1, False), (NOW, False), (NOW + 1, True)]
)
@pytest.mark.parametrize("driving", [set(), {"o"}])
def test_a_worker_gives_back_what_it_took_long_ago_and_does_not_drive(
    run: Run, taken_at: float, is_lost: bool, driving: set[str]
) -> None:
    """A step from the future is one whose clock was set back since."""

    async def story(engine: Any, journal: Store) -> None:
        before = await put_steps(journal, {**STEP, "taken_at": taken_at}, worker="other")
        is_given = is_lost and not driving
        assert await give_back(engine, journal, driving) == is_given
        assert await changed(journal, before) == ([("o", 1)] if is_given else [])

    run(story)


@pytest.mark.parametrize("since", [{"worker": "other"}, {"open": 0, "state": "done"}, {"ordinal": 2}])
def test_a_step_that_changed_since_the_look_is_not_given_back(run: Run, since: dict[str, Any]) -> None:
    async def story(engine: Any, journal: Store) -> None:
        await put_steps(journal)
        write = journal.write

        async def late(body: Any) -> Any:
            async def change(tx: Tx) -> None:
                await rows.change(tx, steps, since, operation_id="o")

            await write(change)
            return await write(body)

        slow: Any = SimpleNamespace(read=journal.read, write=late)
        assert await give_back(engine, slow, set()) == 0

        async def find(tx: Tx) -> Any:
            return await rows.fetch_all(tx, steps, operation_id="o")

        (row,) = await journal.read(find)
        assert {name: row[name] for name in since} == since and row["state"] == since.get("state", "taken")

    run(story)


def test_a_worker_that_stops_hands_back_its_own(run: Run) -> None:
    async def story(engine: Any, journal: Store) -> None:
        before = await put_steps(journal, worker="other")
        assert await hand_back(engine, journal) == ["o"]
        assert await changed(journal, before) == [("o", 1)]

    run(story)


@pytest.mark.parametrize("living", [{"me"}, {"other"}, {"me", "other"}])
def test_only_the_steps_of_the_dead_are_taken_over(run: Run, living: set[str]) -> None:
    async def story(engine: Any, journal: Store) -> None:
        before = await put_steps(journal, worker="other")
        dead = [operation for operation, worker in (("0-neighbour-3", "other"), ("o", "me")) if worker not in living]
        assert await take_over_from(journal, living) == len(dead)
        assert await changed(journal, before) == [(operation, 1) for operation in dead]

    run(story)


@pytest.mark.parametrize("state", ["ready", "done"])
def test_a_step_that_its_dead_worker_ended_after_the_look_is_not_taken_over(run: Run, state: str) -> None:
    async def story(engine: Any, journal: Store) -> None:
        await put_steps(journal)
        write = journal.write

        async def late(body: Any) -> Any:
            async def change(tx: Tx) -> None:
                await rows.change(tx, steps, {"state": state, "open": int(state == "ready")}, operation_id="o")

            await write(change)
            return await write(body)

        slow: Any = SimpleNamespace(read=journal.read, write=late)
        assert await take_over_from(slow, set()) == 0

    run(story)


@pytest.mark.parametrize(
    ("lease_until", "lives", "is_listed"),
    [
        (NOW + 1, True, True),
        (NOW, False, True),
        (NOW - LISTED_AFTER_DEATH + 1, False, True),
        (NOW - LISTED_AFTER_DEATH, False, False),
        (NOW + AT_MOST * LEASE, True, True),
        (NOW + AT_MOST * LEASE + 1, False, False),  # the clock was set back: nobody lives on that
    ],
)
def test_a_worker_lives_as_long_as_its_lease(run: Run, lease_until: float, lives: bool, is_listed: bool) -> None:
    async def story(engine: Any, journal: Store) -> None:
        control = engine.world.db.control

        async def put(tx: Tx) -> None:
            row = {"id": "other", "kind": "conductor", "lease_until": lease_until}
            await rows.put(tx, workers, **zeros(workers, **row))

        await control.write(put)
        for _ in range(2):
            assert await renew(engine, LEASE) == {"me", *(["other"] if lives else [])}

        async def find(tx: Tx) -> dict[str, float]:
            return {row["id"]: row["lease_until"] for row in await rows.fetch_all(tx, workers)}

        assert await control.read(find) == {"me": NOW + LEASE, **({"other": lease_until} if is_listed else {})}

    run(story)


@pytest.mark.parametrize(("ends", "left"), [(leave, ["other"]), (forget_others, ["me"])])
def test_a_worker_leaves_alone_or_is_alone(run: Run, ends: Any, left: list[str]) -> None:
    async def story(engine: Any, journal: Store) -> None:
        control = engine.world.db.control

        async def put(tx: Tx) -> None:
            for name in ("me", "other"):
                await rows.put(tx, workers, **zeros(workers, id=name, kind="conductor"))

        await control.write(put)
        await ends(engine)

        async def find(tx: Tx) -> list[str]:
            return [row["id"] for row in await rows.fetch_all(tx, workers)]

        assert await control.read(find) == left

    run(story)
