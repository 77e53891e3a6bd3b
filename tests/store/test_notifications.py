"""Notifications that wait, on every engine: who takes which, order, leases, pauses, the bound."""

from __future__ import annotations

from sqlalchemy import text

from kilonova.schema.tables.journal import notifications
from kilonova.store import rows
from kilonova.store.notifications import (
    LONGEST_PAUSE,
    count_notifications,
    drop_oldest,
    end_notification,
    postpone_notification,
    put_notification,
    take_notifications,
)
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.store.conftest import Workbench

# as the schema has it
COLUMNS = (
    "id TEXT NOT NULL UNIQUE, subject TEXT NOT NULL, event_type TEXT NOT NULL, priority TEXT NOT NULL, "
    "body TEXT NOT NULL, attempts INTEGER NOT NULL, not_before DOUBLE PRECISION NOT NULL, worker TEXT, "
    "taken_until DOUBLE PRECISION, created_at DOUBLE PRECISION NOT NULL"
)
NUMBER = {"postgres": "number SERIAL PRIMARY KEY"}


async def filled(bench: Workbench, store: Store, *subjects: str) -> None:
    """One of each subject, in this order; ids are n1, n2, …"""
    number = NUMBER.get(bench.kind, "number INTEGER PRIMARY KEY")

    async def body(tx: Tx) -> None:
        await tx.run(Sql(text(f"CREATE TABLE notifications ({number}, {COLUMNS})")))
        for nth, subject in enumerate(subjects, 1):
            await put_notification(
                tx, id=f"n{nth}", subject=subject, event_type="e", priority="INFO", body=f'{{"n": {nth}}}'
            )

    await store.write(body)


async def take(store: Store, worker: str, seconds: float = 60.0, most: int = 8) -> list[str]:
    async def body(tx: Tx) -> list[str]:
        return [row["id"] for row in await take_notifications(tx, worker, seconds, most)]

    return await store.write(body)


async def change(store: Store, message: str, **values: object) -> None:
    await store.write(lambda tx: rows.change(tx, notifications, dict(values), id=message))


async def number_of(store: Store, message: str) -> int:
    row = await store.read(lambda tx: rows.fetch(tx, notifications, id=message))
    assert row is not None
    return int(row["number"])


def test_the_first_of_each_subject_is_taken_by_one(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await filled(bench, store, "a", "a", "b", "c")
        assert await take(store, "w1", most=2) == ["n1", "n3"]
        assert await take(store, "w2") == ["n4"]
        assert await take(store, "w1") == []
        first = await number_of(store, "n1")
        assert await store.write(lambda tx: end_notification(tx, first, "n1"))
        assert not await store.write(lambda tx: end_notification(tx, first, "n1"))
        assert await take(store, "w2") == ["n2"]

    bench.run(story)


def test_a_dead_senders_lease_ends(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await filled(bench, store, "a")
        assert await take(store, "w1") == ["n1"]
        await change(store, "n1", taken_until=0.0)
        assert await take(store, "w2") == ["n1"]
        await change(store, "n1", taken_until=9e9)  # the clock was set back since
        assert await take(store, "w3") == ["n1"]

    bench.run(story)


def test_a_postponed_one_waits_and_keeps_its_place(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await filled(bench, store, "a", "a")
        assert await take(store, "w1") == ["n1"]
        number = await number_of(store, "n1")
        await store.write(lambda tx: postpone_notification(tx, number, "n1", "w2", 0.0))
        assert await take(store, "w2") == []  # it was not w2's
        await store.write(lambda tx: postpone_notification(tx, number, "n1", "w1", LONGEST_PAUSE))
        assert await take(store, "w2") == []
        await change(store, "n1", not_before=9e9)  # the clock was set back since
        assert await take(store, "w2") == ["n1"]
        row = await store.read(lambda tx: rows.fetch(tx, notifications, id="n1"))
        assert row is not None and row["attempts"] == 2

    bench.run(story)


def test_the_oldest_are_dropped(bench: Workbench) -> None:
    async def story(store: Store) -> None:
        await filled(bench, store, "a", "b", "c")
        assert await store.write(lambda tx: drop_oldest(tx, 3)) == 0
        assert await store.write(lambda tx: drop_oldest(tx, 1)) == 2
        assert await store.read(count_notifications) == 1
        assert await take(store, "w1") == ["n3"]

    bench.run(story)
