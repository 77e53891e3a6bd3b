"""Several servers claimed at once: all of them or none, whoever else is claiming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kilonova.placement import claims
from kilonova.placement.batch import BatchMember, Outcomes, claim_many
from kilonova.placement.claims import Claimed, Fence, GroupRule, HostCandidate, NotClaimed
from tests.placement.books import ROWS, SMALL, Books, provider_of

Run = Callable[[Any], None]


def member(server: str, *hosts: str, ordinal: int = 1, size: Mapping[str, int] = SMALL) -> BatchMember:
    return BatchMember(Fence(server, 1, ordinal), tuple(HostCandidate(provider_of(host), dict(size)) for host in hosts))


async def claim(books: Books, *members: BatchMember, group: GroupRule | None = None) -> Outcomes:
    return await claim_many(books.store, members, project="lab", user="ada", group=group)


def places(outcomes: Outcomes) -> dict[str, str]:
    claimed = {server: one for server, one in outcomes.items() if isinstance(one, Claimed)}
    return {server: one.provider.removeprefix("provider-of-") for server, one in claimed.items()}


async def held(books: Books) -> set[str]:
    return {row["consumer"] for row in await books.all(ROWS)}


def test_each_gets_the_first_that_has_room_for_it_and_those_before_it(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        await books.host("b", vcpu=2)
        found = await claim(books, *(member(server, "a", "b") for server in ("s1", "s2", "s3")))
        assert places(found) == {"s1": "a", "s2": "a", "s3": "b"}
        assert await held(books) == {"s1", "s2", "s3"}
        await books.check()

    run(story)


def test_there_is_no_room_for_the_last_so_nobody_gets_any(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        members = [member(server, "a") for server in ("s1", "s2", "s3")]
        found = await claim(books, *members)
        assert set(found) == {"s1", "s2", "s3"} and all(isinstance(one, NotClaimed) for one in found.values())
        why = found["s3"]
        assert isinstance(why, NotClaimed) and why.sentence() == "provider provider-of-a: needs 1 VCPU, 0 free of 2"
        assert await held(books) == set()
        await books.host("b")
        assert await claim(books, *members) == found, "what was recorded is said again"
        again = [member(server, "a", "b", ordinal=3) for server in ("s1", "s2", "s3")]
        assert len(places(await claim(books, *again))) == 3

    run(story)


def test_asked_again_it_is_not_done_again(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        members = [member("s1", "a"), member("s2", "a")]
        assert await claim(books, *members) == await claim(books, *members)
        await books.check()

    run(story)


def test_who_was_deleted_meanwhile_is_left_out(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        await claims.release(books.store, Fence("s2", 2, 1), ["s2"])
        found = await claim(books, *(member(server, "a") for server in ("s1", "s2", "s3")))
        assert places(found) == {"s1": "a", "s3": "a"} and "s2" not in found
        assert await held(books) == {"s1", "s3"}

    run(story)


def test_a_group_is_kept_among_them(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        apart = GroupRule("g", "anti-affinity")
        found = await claim(books, member("s1", "a", "b"), member("s2", "a", "b"), group=apart)
        assert places(found) == {"s1": "a", "s2": "b"}
        refused = await claim(books, member("s3", "a", "b"), group=apart)
        assert places(refused) == {}
        together = GroupRule("t", "affinity")
        found = await claim(books, member("s4", "b", "a"), member("s5", "a", "b"), group=together)
        assert places(found) == {"s4": "b", "s5": "b"}

    run(story)


def test_batches_at_once_are_whole_or_not_at_all(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=5)
        await books.host("b", vcpu=5)

        def batch(number: int) -> Sequence[BatchMember]:
            first, second = ("a", "b") if number % 2 else ("b", "a")
            return [member(f"{number}-{n}", first, second) for n in range(3)]

        done = await asyncio.gather(*(claim(books, *batch(number)) for number in range(6)))
        whole = [number for number, found in enumerate(done) if len(places(found)) == 3]
        none = [number for number, found in enumerate(done) if not places(found)]
        assert sorted([*whole, *none]) == list(range(6)) and len(whole) == 3
        assert await held(books) == {f"{number}-{n}" for number in whole for n in range(3)}
        await books.check()

    run(story)
