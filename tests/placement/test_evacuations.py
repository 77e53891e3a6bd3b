"""Evacuations: the dead source's share stays under the same consumer, held for the evacuation, until it is clean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilonova.placement.claims import Claimed, ClaimReturned, Dropped, GroupRule, NotClaimed
from tests.placement.books import LARGE, SMALL, Books, provider_of

Run = Callable[[Any], None]
ANTI = GroupRule("web", "anti-affinity")


def test_source_and_destination_are_held_until_the_source_is_clean(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        assert (await books.claim_evacuation("s1", "e1", "b")).provider == provider_of("b")
        assert await books.held() == {"s1": {("a", "e1"): SMALL, ("b", ""): SMALL}}
        assert (await books.used("a"), await books.used("b")) == (1, 1)
        assert await books.drop_holder("s1", "e1") == Dropped(3)
        assert await books.drop_holder("s1", "e1") == Dropped(0), "once is enough"
        assert await books.held() == {"s1": {("b", ""): SMALL}}

    run(story)


def test_an_undone_evacuation_leaves_the_source(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.host("a", vcpu=0, memory=0, disk=0)
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(3, 3)
        assert await books.held() == {"s1": {("a", ""): SMALL}}
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(0, 0)
        assert await books.drop_holder("s1", "e1") == Dropped(0), "a late cleaning touches nothing of the server's own"
        assert await books.held() == {"s1": {("a", ""): SMALL}}

    run(story)


def test_no_destination_leaves_everything_as_it_was(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.host("b", vcpu=1)
        await books.claim("s1", "a", size=LARGE)
        assert isinstance(await books.claim_evacuation("s1", "e1", "b", size=LARGE), NotClaimed)
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(0, 0)
        assert await books.held() == {"s1": {("a", ""): LARGE}}

    run(story)


def test_a_second_evacuation_leaves_the_first_ones_share_alone(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_evacuation("s1", "e2", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("b", "e2"), ("c", "")}}
        assert await books.drop_holder("s1", "e1") == Dropped(3)
        await books.return_evacuation("s1", "e2")
        assert await books.places() == {"s1": {("b", "")}}

    run(story)


def test_the_next_destination_replaces_the_first(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_evacuation("s1", "e1", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("c", "")}}

    run(story)


def test_a_move_takes_only_what_the_server_holds_itself(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_move("s1", "m1", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("c", "")}, "m1": {("b", "")}}
        await books.drop_holder("s1", "e1")
        await books.return_move("s1", "m1")
        assert await books.places() == {"s1": {("b", "")}}

    run(story)


def test_evacuating_in_the_middle_of_an_open_move(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a", group=ANTI)
        await books.claim_move("s1", "m1", "b", group=ANTI)
        await books.claim_evacuation("s1", "e1", "c", group=ANTI)
        assert await books.places() == {"s1": {("b", "e1"), ("c", "")}, "m1": {("a", "")}}
        assert await books.counted() == {("s1", "a"), ("s1", "c")}
        await books.release("s1", "m1")
        assert await books.held() == {} and await books.counted() == set()

    run(story)


def test_the_source_of_an_evacuation_does_not_count_in_its_group(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("w1", "a", group=ANTI)
        await books.claim_evacuation("w1", "e1", "b", group=ANTI)
        assert await books.counted() == {("w1", "b")}
        assert isinstance(await books.claim("w2", "a", group=ANTI), Claimed)
        await books.release("w2")
        await books.return_evacuation("w1", "e1")
        assert await books.counted() == {("w1", "a")}

    run(story)


def test_the_only_holder_cleaned_after_the_server_is_gone(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.release("s1")
        assert await books.drop_holder("s1", "e1") == Dropped(0)
        assert await books.drop_holder("s1", "") == Dropped(0), "the server's own rows are nobody's evacuation"

    run(story)
