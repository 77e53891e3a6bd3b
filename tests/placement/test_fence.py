"""Law 2: a recorded outcome is given again as it is, whatever happened since; what comes too late changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Superseded
from kilonova.placement import claims
from kilonova.placement.claims import Claimed, ClaimReturned, Dropped, NotClaimed, Released
from kilonova.placement.fence import Attempt, Fence, fenced
from kilonova.placement.refusals import LostRace, NoSuchProvider
from kilonova.schema.tables.control import server_mappings
from kilonova.store import rows
from kilonova.store.fences import MAPPED_SECONDS
from kilonova.store.open_stores import open_store
from kilonova.world import Tx
from tests.placement.books import Books, provider_of
from tests.placement.neighbourhood import NOW, StandingClock, play
from tests.placement.test_claims import BY, at
from tests.support.neighbours import zeros

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
        for verb, *args in (
            (books.claim, "b"),
            (books.claim_move, "m1", "b"),
            (books.claim_evacuation, "e1", "b"),
            (books.return_move, "m1"),
            (books.drop_move, "m1"),
            (books.return_evacuation, "e1"),
            (books.release,),
        ):
            with pytest.raises(Superseded):
                await verb("s1", *args, at=late)
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


@pytest.mark.parametrize(
    ("server", "is_mapped", "age", "is_claimed"),
    [
        ("new", True, MAPPED_SECONDS, True),
        ("new", False, MAPPED_SECONDS, True),  # it was there a moment ago: it cannot have been purged since
        ("new", True, MAPPED_SECONDS + 1, True),
        ("new", False, MAPPED_SECONDS + 1, False),
        ("t", False, MAPPED_SECONDS + 1, True),  # it has a fence
    ],
)
def test_a_server_that_may_have_been_purged_is_looked_for(
    tmp_path: Path, server: str, is_mapped: bool, age: float, is_claimed: bool
) -> None:
    """A fence goes a day after the mapping: without one, a mapping that was seen hours ago proves nothing."""

    async def story(store: Any) -> None:
        control = await open_store("control", f"sqlite:///{tmp_path}/control.db", clock=StandingClock())
        try:
            for name in (server, "other") if is_mapped else ("other",):
                mapping = zeros(server_mappings, server_id=name, project_id="p", user_id="u")
                await control.write(lambda tx, mapping=mapping: rows.put(tx, server_mappings, **mapping))
            fence = Fence(server, 1, 2, control, NOW - age)
            if is_claimed:
                assert isinstance(await claims.claim(store, fence, [at("b")], **BY), Claimed)
            else:
                with pytest.raises(Superseded, match="it has no mapping, it was deleted and purged"):
                    await claims.claim(store, fence, [at("b")], **BY)
        finally:
            await control.close()

    play(tmp_path, story)


@pytest.mark.parametrize(("losses", "is_done"), [(0, True), (1, True), (2, True), (3, False), (9, False)])
@pytest.mark.parametrize("loss", [LostRace("a race"), NoSuchProvider("p")], ids=repr)
def test_a_lost_race_is_run_three_times_and_carefully_after_the_first(
    tmp_path: Path, loss: Exception, losses: int, is_done: bool
) -> None:
    attempts: list[bool] = []

    async def verb(tx: Tx, attempt: Attempt) -> Dropped:
        attempts.append(attempt.careful)
        if len(attempts) <= losses:
            raise loss
        return Dropped(len(attempts))

    async def story(store: Any) -> None:
        if is_done:
            assert await fenced(store, Fence("new", 1, 1), verb, Dropped) == Dropped(losses + 1)
        else:
            with pytest.raises(type(loss)):
                await fenced(store, Fence("new", 1, 1), verb, Dropped)
        assert attempts == [False, True, True][: len(attempts)] and len(attempts) == min(losses, 2) + 1

    play(tmp_path, story)
