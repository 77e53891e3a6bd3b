"""Which rows a flush of heartbeats writes: those of the hosts that were heard, and the observer's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor.observer import FORGOTTEN_AFTER, Observer
from kilonova.schema.tables.cell import hosts, observers
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Store, Tx
from tests.support.distinct import distinct_settings
from tests.support.neighbours import Watched, put_neighbours, zeros

NOW = 10_000.0
HOST = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "s", "last_seen": NOW - 10.0}
Run = Callable[[Callable[[Observer, Store], Awaitable[None]]], None]


class StandingClock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return NOW


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def runs(story: Callable[[Observer, Store], Awaitable[None]]) -> None:
        async def whole() -> None:
            store = await open_store("cell1", f"sqlite:///{tmp_path}/cell1.db", clock=StandingClock())
            world = SimpleNamespace(clock=StandingClock())
            engine: Any = SimpleNamespace(world=world, settings=distinct_settings(), worker="me", flush_seconds=1.0)
            try:
                await story(Observer(engine, store), store)
            finally:
                await store.close()

        asyncio.run(whole())

    return runs


async def put_hosts(store: Store, row: dict[str, Any], **others: Any) -> Watched:
    async def body(tx: Tx) -> Watched:
        await put_neighbours(tx, hosts, row, **others)
        await rows.put(tx, hosts, **zeros(hosts, **row))
        return await Watched.since_now(tx, hosts)

    return await store.write(body)


async def put_observers(store: Store, **until: float) -> Watched:
    async def body(tx: Tx) -> Watched:
        for name, seen in until.items():
            await rows.put(tx, observers, id=name, since=1.0, until=seen)
        return await Watched.since_now(tx, observers)

    return await store.write(body)


@pytest.mark.parametrize(
    ("row", "is_heard"), [({}, True), ({"session": "later"}, False), ({"last_seen": NOW + 1.0}, False)]
)
def test_only_the_host_that_was_heard_is_recorded(run: Run, row: dict[str, Any], is_heard: bool) -> None:
    """As the agent that registered last, and unless another conductor has heard it since."""

    async def story(observer: Observer, store: Store) -> None:
        before = await put_hosts(store, {**HOST, **row}, name="host0")
        observer.hear("host1", "s")
        await observer.flush(True)
        assert [one["name"] for one in await store.read(before.changed)] == ["host1"] * is_heard

    run(story)


def test_an_observer_writes_its_own_row_only(run: Run) -> None:
    async def story(observer: Observer, store: Store) -> None:
        before = await put_observers(store, another=NOW - 1.0, me=NOW - 1.0, other=NOW - 2 * FORGOTTEN_AFTER)
        observer.hear("host1", "s")
        await observer.flush(True)
        assert [one["id"] for one in await store.read(before.changed)] == ["me"]

    run(story)


def test_a_new_observer_forgets_those_that_are_gone(run: Run) -> None:
    """And has a row of its own, whoever else is there."""

    async def story(observer: Observer, store: Store) -> None:
        before = await put_observers(store, another=NOW - 1.0, gone=NOW - FORGOTTEN_AFTER - 1.0)
        observer.hear("host1", "s")
        await observer.flush(True)
        assert [one["id"] for one in await store.read(before.changed)] == ["gone"]
        (mine,) = [row for row in await store.read(lambda tx: rows.fetch_all(tx, observers)) if row["id"] == "me"]
        assert (mine["since"], mine["until"]) == (NOW, NOW)

    run(story)
