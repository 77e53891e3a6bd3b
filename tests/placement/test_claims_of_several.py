"""Claims on several providers at once: a host's own, those below it, and one that shares with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilonova.placement import claims
from kilonova.placement.claims import Claimed, HostCandidate, NotClaimed
from tests.placement.books import OWNER, Books, provider_of

Run = Callable[[Any], None]
SIZE = {"VCPU": 2, "MEMORY_MB": 1024}


def on(host: str, other: str, **given: int) -> HostCandidate:
    return HostCandidate(provider_of(host), SIZE, {provider_of(other): given or {"DISK_GB": 10}})


async def claim(books: Books, *candidates: HostCandidate, server: str = "s1") -> Any:
    return await claims.claim(books.store, books.fence(server), list(candidates), **OWNER)


def test_all_of_it_or_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "pool")
        outcome = await claim(books, on("a", "pool", DISK_GB=500), on("b", "pool"))
        assert isinstance(outcome, Claimed) and outcome.provider == provider_of("b")
        assert [refusal.provider for refusal in outcome.refused] == [provider_of("pool")]
        assert await books.held() == {"s1": {("b", ""): SIZE, ("pool", ""): {"DISK_GB": 10}}}
        refused = await claim(books, on("a", "pool", DISK_GB=500), server="s2")
        assert isinstance(refused, NotClaimed) and "s2" not in await books.held()

    run(story)


def test_a_closed_host_takes_no_claim_on_what_belongs_to_it(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "a_numa0")
        only_below = HostCandidate(provider_of("a"), {}, {provider_of("a_numa0"): SIZE})
        await books.accept("a", False)
        outcome = await claim(books, only_below)
        assert isinstance(outcome, NotClaimed) and outcome.refused[0].reason == "not_accepting"
        await books.accept("a", True)
        assert isinstance(await claim(books, only_below), Claimed)
        assert await books.held() == {"s1": {("a_numa0", ""): SIZE}}

    run(story)


def test_a_move_takes_and_returns_all_of_it(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "pool")
        await claim(books, on("a", "pool"))
        before = await books.held()
        await claims.claim_move(books.store, books.fence("s1"), "m1", [on("b", "pool")], **OWNER)
        held = await books.held()
        assert held["m1"] == before["s1"] and held["s1"] == {("b", ""): SIZE, ("pool", ""): {"DISK_GB": 10}}
        await books.return_move("s1", "m1")
        assert await books.held() == before
        await books.release("s1")
        assert await books.held() == {}

    run(story)
