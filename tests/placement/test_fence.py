"""Law 2: a recorded outcome is given again as it is, whatever happened since; what comes too late changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Superseded
from kilonova.placement.claims import Claimed, ClaimReturned, Dropped, NotClaimed, Released
from tests.placement.books import Books, provider_of

Run = Callable[[Any], None]


def test_asked_again_the_recorded_outcome_is_the_answer(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        first = await books.claim("s1", "a", at=(1, 1))
        await books.accept("a", False)
        again = await books.claim("s1", "b", at=(1, 1))
        assert again == first and again.provider == provider_of("a"), "the world has changed, the answer has not"
        assert await books.places() == {"s1": {("a", "")}}

    run(story)


def test_a_refusal_is_recorded_too(run: Run) -> None:
    async def story(books: Books) -> None:
        refused = await books.claim("s1", "a", at=(1, 1))
        await books.hosts("a")
        assert await books.claim("s1", "a", at=(1, 1)) == refused
        assert isinstance(refused, NotClaimed) and refused.refused[0].reason == "no_such_provider"
        assert await books.held() == {}
        assert isinstance(await books.claim("s1", "a", at=(1, 2)), Claimed)

    run(story)


@pytest.mark.parametrize("late", [(2, 4), (1, 9)])
def test_an_older_turn_or_ordinal_changes_nothing(run: Run, late: tuple[int, int]) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a", at=(2, 5))
        for verb in (
            books.claim("s1", "b", at=late),
            books.claim_move("s1", "m1", "b", at=late),
            books.claim_evacuation("s1", "e1", "b", at=late),
            books.return_move("s1", "m1", at=late),
            books.drop_move("s1", "m1", at=late),
            books.return_evacuation("s1", "e1", at=late),
            books.release("s1", at=late),
        ):
            with pytest.raises(Superseded):
                await verb
        assert await books.places() == {"s1": {("a", "")}}

    run(story)


def test_a_new_turn_starts_its_ordinals_anew(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a", at=(1, 7))
        assert isinstance(await books.claim("s1", "b", at=(2, 1)), Claimed)

    run(story)


def test_every_verb_replays_its_own_outcome(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a", at=(1, 1))
        moved = await books.claim_move("s1", "m1", "b", at=(1, 2))
        assert await books.claim_move("s1", "m1", "b", at=(1, 2)) == moved
        for _ in range(2):
            assert await books.return_move("s1", "m1", at=(1, 3)) == ClaimReturned(3, 3)
        await books.claim_evacuation("s1", "e1", "b", at=(1, 4))
        for _ in range(2):
            assert await books.return_evacuation("s1", "e1", at=(1, 5)) == ClaimReturned(3, 3)
        await books.claim_move("s1", "m1", "b", at=(1, 6))
        for _ in range(2):
            assert await books.drop_move("s1", "m1", at=(1, 7)) == Dropped(3)
        for _ in range(2):
            assert await books.release("s1", at=(1, 8)) == Released(1, 3)
        assert await books.held() == {}

    run(story)


def test_a_claim_that_wakes_up_after_the_delete(run: Run) -> None:
    """A11: the consumer is gone, its fence is not."""

    async def story(books: Books) -> None:
        await books.hosts("a")
        await books.claim("s1", "a", at=(1, 1))
        await books.release("s1", at=(2, 1))
        assert await books.consumers() == {}
        with pytest.raises(Superseded):
            await books.claim("s1", "a", at=(1, 1))
        assert await books.held() == {}

    run(story)


def test_the_same_step_by_two_conductors_at_once_is_done_once(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        outcomes = await asyncio.gather(*(books.claim("s1", host, at=(1, 1)) for host in "abc"))
        assert len({outcome.provider for outcome in outcomes}) == 1
        assert len((await books.places())["s1"]) == 1

    run(story)


def test_one_servers_fence_is_not_anothers(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        await books.claim("s1", "a", at=(9, 9))
        assert isinstance(await books.claim("s2", "a", at=(1, 1)), Claimed)

    run(story)
