"""What a repair makes a consumer hold, when it leaves it as it is, and why; in placement's own books."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from kilonova.audit.findings import Unbalanced, finding_of
from kilonova.audit.reading import Reading
from kilonova.audit.repair import recount, repair
from kilonova.placement import books as records
from kilonova.placement.history import read_history
from kilonova.schema.tables import placement as tables
from kilonova.store.open_stores import open_store
from kilonova.store.statements import Sql
from tests.placement.books import SMALL, Books, WallClock

FENCES = Sql(select(tables.claim_fence))
SPOIL = Sql(update(tables.inventories).values(used=tables.inventories.c.used + 5))
Run = Callable[[Callable[[Books], Awaitable[None]]], None]
CONCURRENT = "modified concurrently; the next audit compares it again"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a story with the books of two hosts; server s, of demo, holds what it needs on host1."""

    async def whole(story: Callable[[Books], Awaitable[None]]) -> None:
        store = await open_store("placement", f"sqlite:///{tmp_path}/placement.db", clock=WallClock())
        try:
            books = Books(store)
            await books.hosts("host1", "host2")
            await books.claim("s", "host1")
            await story(books)
            await books.check()
        finally:
            await store.close()

    return lambda story: asyncio.run(whole(story))


async def read(books: Books, **known: Any) -> Reading:
    """Placement as it is now; of all other databases what is given."""
    fences = {row["server_id"]: (row["turn"], row["ordinal"]) for row in await books.all(FENCES)}
    generations = {uuid: row["generation"] for uuid, row in (await books.consumers()).items()}
    return Reading(held=await books.held(), fences=fences, generations=generations, **known)


def on(*hosts: str, holder: str = "", **amounts: int) -> records.Held:
    """Server s owns this on each of the hosts."""
    return {"s": {(host, holder): amounts or SMALL for host in hosts}}


async def repaired(books: Books, reading: Reading, consumer: str = "s") -> str:
    return await repair(books.store, reading, finding_of(reading, consumer))


def test_a_consumer_gets_exactly_what_it_owns(run: Run) -> None:
    """Elsewhere, more than one share, another amount, for an evacuation; it stays the same owner's."""

    async def story(books: Books) -> None:
        for owned in (on("host2"), on("host1", "host2"), on("host1", VCPU=3), on("host1", holder="e"), {}):
            assert await repaired(books, await read(books, expected=owned, owners={"s": ("other", "other")})) == ""
            assert await books.held() == owned
            assert [(row["project_id"], row["user_id"]) for row in (await books.consumers()).values()] in (
                [("demo", "alice")],
                [],
            )
        lines = (await read_history(books.store, "s"))[1:]
        assert {(line.verb, line.who) for line in lines} == {("audit", "audit")} and len(lines) == 5

    run(story)


def test_what_is_made_again_is_the_owners_of_the_server(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.release("s")
        reading = await read(
            books, expected={"m": on("host2")["s"]}, owners={"s": ("its", "bob")}, server_of={"m": "s"}
        )
        assert await repaired(books, reading, "m") == ""
        consumer = (await books.consumers())["m"]
        assert (consumer["project_id"], consumer["user_id"]) == ("its", "bob")
        assert [line.consumer for line in await read_history(books.store, "s")][-1] == "m"

    run(story)


def test_a_repair_leaves_no_fence_where_none_was(run: Run) -> None:
    async def story(books: Books) -> None:
        reading = await read(books, expected={"new": on("host1")["s"]})
        assert await repaired(books, reading, "new") == ""
        assert [row["server_id"] for row in await books.all(FENCES)] == ["s"]

    run(story)


@pytest.mark.parametrize(
    "known", [{"fences": {}}, {"fences": {"s": (1, 2)}}, {"generations": {}}, {"generations": {"s": 2}}]
)
def test_what_was_written_since_is_left(run: Run, known: dict[str, Any]) -> None:
    """Also what nobody had written when it was read."""

    async def story(books: Books) -> None:
        reading, before = await read(books), await books.held()
        for name, value in known.items():
            setattr(reading, name, value)
        assert await repaired(books, reading) == CONCURRENT
        assert await books.held() == before

    run(story)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (
            {"mapped": {"s": "cell1"}},
            "control has the server in cell1, which has no record of it; a missing record frees",
        ),
        ({"mapped": {"s": "cell1"}, "turns": {"s": 1}}, ""),
        ({"mapped": {"s": None}}, ""),
        (
            {"quarantined": {("s", "host9"), ("s", "host3"), ("t", "host4")}},
            "a copy of the server is in quarantine on host3, host9; adopt or remove it first",
        ),
        ({"quarantined": {("t", "host1")}}, ""),
        ({"expected": on("host2"), "copies": {("s", "host1")}}, "a copy of the server is still recorded on host1"),
        ({"expected": on("host2"), "copies": {("t", "host1"), ("s", "host2")}}, ""),
        ({"copies": {("s", "host1")}}, ""),  # the server is deleted: it owns nothing at all
        ({"expected": on("nowhere")}, "provider nowhere: not found"),
        ({"expected": on("host2", VCPU=99)}, "provider provider-of-host2: needs 99 VCPU, 8 free of 8"),
    ],
)
def test_when_a_claim_is_left_and_why(run: Run, known: dict[str, Any], why: str) -> None:
    async def story(books: Books) -> None:
        before = await books.held()
        reading = await read(books, **known)
        said = await repaired(books, reading)
        assert said.startswith(why) and bool(said) is bool(why)
        assert await books.held() == (before if why else reading.expected)

    run(story)


def test_use_is_counted_again_at_one_provider(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.store.write(lambda tx: tx.run(SPOIL))
        before = await books.generation("host1")
        assert await recount(books.store, Unbalanced("host1", "VCPU", 6, 1)) == ""
        assert (await books.used("host1"), await books.used("host2")) == (1, 5)
        assert await books.generation("host1") == before + 1, "who chooses hosts reads it again"
        assert await recount(books.store, Unbalanced("host2", "VCPU", 5, 0)) == ""

    run(story)


@pytest.mark.parametrize(
    ("unbalanced", "why"),
    [
        (Unbalanced("gone", "VCPU", 1, 0), "provider gone: not found"),
        (Unbalanced("host1", "PCPU", None, 1), "provider host1: it does not offer PCPU"),
    ],
)
def test_what_cannot_be_counted_again_is_left_with_the_reason(run: Run, unbalanced: Unbalanced, why: str) -> None:
    async def story(books: Books) -> None:
        before = await books.generation("host1")
        assert await recount(books.store, unbalanced) == why
        assert await books.generation("host1") == before

    run(story)
