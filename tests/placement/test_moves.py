"""Moves: the source's share goes to the migration and comes back, or is dropped; never refused for capacity (A13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.placement.claims import Claimed, ClaimReturned, Dropped, GroupRule, NotClaimed
from tests.placement.books import LARGE, SMALL, Books, provider_of

Run = Callable[[Any], None]
ANTI = GroupRule("web", "anti-affinity")


def test_a_move_holds_both_hosts_until_it_is_confirmed(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        assert (await books.claim_move("s1", "m1", "b", size=LARGE)).provider == provider_of("b")
        assert await books.held() == {"m1": {("a", ""): SMALL}, "s1": {("b", ""): LARGE}}
        assert await books.drop_move("s1", "m1") == Dropped(3)
        assert await books.held() == {"s1": {("b", ""): LARGE}}
        assert set(await books.consumers()) == {"s1"}
        assert await books.drop_move("s1", "m1") == Dropped(0)

    run(story)


def test_a_revert_gives_the_source_back(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        await books.claim_move("s1", "m1", "b", size=LARGE)
        assert await books.return_move("s1", "m1") == ClaimReturned(returned=3, dropped=3)
        assert await books.held() == {"s1": {("a", ""): SMALL}}
        assert await books.return_move("s1", "m1") == ClaimReturned(0, 0), "undoing what was undone changes nothing"
        assert await books.held() == {"s1": {("a", ""): SMALL}}

    run(story)


def test_no_destination_leaves_everything_as_it_was(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.host("b", vcpu=2)
        await books.claim("s1", "a")
        before = await books.held(), await books.generation("a"), (await books.consumers())["s1"]["generation"]
        assert isinstance(await books.claim_move("s1", "m1", "b", size=LARGE), NotClaimed)
        assert before == (
            await books.held(),
            await books.generation("a"),
            (await books.consumers())["s1"]["generation"],
        )
        assert await books.return_move("s1", "m1") == ClaimReturned(0, 0), "there is nothing to undo"
        assert await books.held() == before[0]

    run(story)


def test_on_the_same_host_old_and_new_both_count(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=5)
        await books.claim("s1", "a", size=SMALL)
        assert isinstance(await books.claim_move("s1", "m1", "a", size=LARGE), Claimed)
        assert await books.used("a") == 5
        assert await books.held() == {"m1": {("a", ""): SMALL}, "s1": {("a", ""): LARGE}}
        await books.return_move("s1", "m1")
        assert await books.used("a") == 1
        await books.host("a", vcpu=4)
        assert isinstance(await books.claim_move("s1", "m2", "a", size=LARGE), NotClaimed), "needs room for both"

    run(story)


def test_a_revert_is_not_refused_after_the_inventory_shrank(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        await books.host("b", vcpu=4)
        await books.claim("s1", "a", size=LARGE)
        await books.claim_move("s1", "m1", "b", size=LARGE)
        await books.host("a", vcpu=1, memory=16, disk=1)
        await books.host("b", vcpu=1, memory=16, disk=1)
        assert await books.return_move("s1", "m1") == ClaimReturned(3, 3)
        assert await books.held() == {"s1": {("a", ""): LARGE}}
        assert (await books.used("a"), await books.used("b")) == (4, 0)

    run(story)


def test_what_only_changes_hands_is_not_compared_with_the_units(run: Run) -> None:
    """The host has got smaller than the server: it may still become a smaller one there."""

    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        await books.claim("s1", "a", size=LARGE)
        await books.host("a", vcpu=3, ratio=4.0)  # one server may have 3 at most from now on
        assert isinstance(await books.claim_move("s1", "m1", "a", size=SMALL), Claimed)
        assert await books.held() == {"m1": {("a", ""): LARGE}, "s1": {("a", ""): SMALL}}

    run(story)


def test_leaving_a_host_that_shrank_or_accepts_no_more(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a", size=LARGE)
        await books.host("a", vcpu=1)
        await books.accept("a", False)
        assert isinstance(await books.claim_move("s1", "m1", "b", size=LARGE), Claimed)
        await books.return_move("s1", "m1")
        assert await books.places() == {"s1": {("a", "")}}

    run(story)


def test_the_next_destination_replaces_the_first(run: Run) -> None:
    """A retry is a new ordinal for the same migration: the source's share must not be mixed with a destination's."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_move("s1", "m1", "b", size=LARGE)
        await books.claim_move("s1", "m1", "c", size=LARGE)
        assert await books.held() == {"m1": {("a", ""): SMALL}, "s1": {("c", ""): LARGE}}
        await books.claim_move("s1", "m1", "c", size=LARGE)
        assert await books.held() == {"m1": {("a", ""): SMALL}, "s1": {("c", ""): LARGE}}
        await books.return_move("s1", "m1")
        assert await books.held() == {"s1": {("a", ""): SMALL}}

    run(story)


def test_a_server_that_held_nothing_can_be_moved_and_undone(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim_move("s1", "m1", "b")
        assert await books.places() == {"s1": {("b", "")}}
        assert await books.return_move("s1", "m1") == ClaimReturned(0, 3)
        assert await books.held() == {} and await books.consumers() == {}

    run(story)


@pytest.mark.parametrize("end", ["drop_move", "drop_source"])
def test_a_server_counts_on_both_hosts_while_the_move_is_open(run: Run, end: str) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("w1", "a", group=ANTI)
        await books.claim_move("w1", "m1", "b", group=ANTI)
        assert await books.counted() == {("w1", "a"), ("w1", "b")}
        assert (await books.claim("w2", "a", "b", "c", group=ANTI)).provider == provider_of("c")
        await books.return_move("w1", "m1")
        assert await books.counted() == {("w1", "a"), ("w2", "c")}
        await books.claim_move("w1", "m2", "b", group=ANTI)
        assert await getattr(books, end)("w1", "m2") == Dropped(3)
        assert await books.counted() == {("w1", "b"), ("w2", "c")}
        assert await books.held() == {"w1": {("b", ""): SMALL}, "w2": {("c", ""): SMALL}}

    run(story)


@pytest.mark.parametrize("end", ["drop_move", "drop_source"])
def test_a_server_counts_once_on_the_same_host(run: Run, end: str) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        pairs = GroupRule("web", "anti-affinity", max_per_host=2)
        await books.claim("w1", "a", group=pairs)
        assert isinstance(await books.claim_move("w1", "m1", "a", group=pairs), Claimed)
        assert await books.counted() == {("w1", "a")}
        assert isinstance(await books.claim("w2", "a", group=pairs), Claimed)
        await getattr(books, end)("w1", "m1")
        assert await books.counted() == {("w1", "a"), ("w2", "a")}

    run(story)


def test_moves_in_parallel_between_two_hosts(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await asyncio.gather(*(books.claim(f"s{n}", "ab"[n % 2]) for n in range(8)))
        await asyncio.gather(*(books.claim_move(f"s{n}", f"m{n}", "ba"[n % 2]) for n in range(8)))
        assert (await books.used("a"), await books.used("b")) == (8, 8)
        await asyncio.gather(
            *(books.return_move(f"s{n}", f"m{n}") if n < 4 else books.drop_move(f"s{n}", f"m{n}") for n in range(8))
        )
        assert await books.places() == {f"s{n}": {("ab"[n % 2] if n < 4 else "ba"[n % 2], "")} for n in range(8)}

    run(story)
