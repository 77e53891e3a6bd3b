"""claim and release, group rules, and hosts that take no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.placement import capacity, fence
from kilonova.placement.capacity import CandidateChoice, ProviderCapacity
from kilonova.placement.claims import Claimed, GroupRule, NotClaimed, Released, must_accept
from kilonova.placement.ledger import Rows
from tests.placement.books import LARGE, SMALL, Books, provider_of

Run = Callable[[Any], None]


def test_the_first_candidate_that_fits_is_claimed_and_the_others_say_why_not(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        await books.host("b")
        outcome = await books.claim("s1", "nowhere", "a", "b", size=LARGE)
        assert isinstance(outcome, Claimed) and outcome.provider == provider_of("b")
        assert [refusal.reason for refusal in outcome.refused] == ["no_such_provider", "over_capacity"]
        tight = outcome.refused[1]
        assert (tight.resource_class, tight.wanted, tight.used, tight.capacity) == ("VCPU", 4, 0, 2)
        assert tight.sentence == "provider provider-of-a: needs 4 VCPU, 2 free of 2"
        assert await books.held() == {"s1": {("b", ""): LARGE}}
        assert (await books.consumers())["s1"]["generation"] == 1

    run(story)


def test_no_room_anywhere_is_an_outcome_and_changes_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", memory=512)
        before = await books.generation("a")
        outcome = await books.claim("s1", "a")
        assert isinstance(outcome, NotClaimed)
        assert outcome.sentence() == "provider provider-of-a: needs 1024 MEMORY_MB, 512 free of 512"
        assert await books.held() == {} and await books.consumers() == {}
        assert await books.generation("a") == before
        assert await books.claim("s1") == NotClaimed(())

    run(story)


def test_use_never_passes_capacity(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=3)
        outcomes = await asyncio.gather(*(books.claim(f"s{number}", "a") for number in range(8)))
        assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 3
        assert await books.used("a") == 3

    run(story)


def test_losers_of_a_race_take_the_next_candidate(run: Run) -> None:
    """Two lists in opposite order on two full-ish hosts: nobody deadlocks, nobody is turned away without need."""

    async def story(books: Books) -> None:
        await books.host("a", vcpu=6)
        await books.host("b", vcpu=6)
        orders = [("a", "b"), ("b", "a")]
        outcomes = await asyncio.gather(*(books.claim(f"s{n}", *orders[n % 2]) for n in range(14)))
        assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 12
        assert (await books.used("a"), await books.used("b")) == (6, 6)

    run(story)


def test_after_a_lost_race_the_candidates_are_locked_first(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival takes the room between each look and the write; the second time it has to wait."""
    if url.startswith("sqlite"):
        return  # one writer: nobody comes in between

    async def story(books: Books) -> None:
        await books.host("a", vcpu=1)
        once, read_capacities, looking, rivals = fence._once, capacity.read_capacities, [False], []

        async def once_more(at: Any, verb: Any, careful: bool, kind: Any, tx: Any) -> Any:
            if at.server == "s1":
                if careful:
                    await books.release("rival")
                looking[0] = True
            return await once(at, verb, careful, kind, tx)

        async def look(tx: Any, uuids: Any) -> Any:
            found = await read_capacities(tx, uuids)
            if looking[0]:
                looking[0] = False
                rivals.append(asyncio.create_task(books.claim("rival", "a", size={"VCPU": 1})))
                await asyncio.wait(rivals, timeout=0.3)
            return found

        monkeypatch.setattr(fence, "_once", once_more)
        monkeypatch.setattr(capacity, "read_capacities", look)
        assert isinstance(await books.claim("s1", "a", size={"VCPU": 1}), Claimed)
        outcomes = await asyncio.gather(*rivals)
        assert [type(outcome) for outcome in outcomes] == [Claimed, NotClaimed]

    run(story)


def test_claiming_again_replaces_what_the_server_holds(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        await books.host("b")
        await books.claim("s1", "a", size=LARGE)
        assert isinstance(await books.claim("s1", "a", size=LARGE), Claimed), "its own share counts as free"
        await books.claim("s1", "b")
        assert await books.held() == {"s1": {("b", ""): SMALL}}
        assert await books.used("a") == 0

    run(story)


def test_a_renewed_claim_is_not_refused_for_capacity(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)
        await books.claim("s1", "a", size=LARGE)
        await books.host("a", vcpu=1)
        await books.accept("a", False)
        assert isinstance(await books.claim("s1", "a", size=LARGE), Claimed)
        assert isinstance(await books.claim("s2", "a"), NotClaimed)

    run(story)


def test_zero_amounts_are_not_claimed_and_unknown_classes_refused(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        await books.claim("s1", "a", size={"VCPU": 1, "DISK_GB": 0})
        assert await books.held() == {"s1": {("a", ""): {"VCPU": 1}}}
        outcome = await books.claim("s2", "a", size={"CUSTOM_GPU": 1})
        assert outcome.refused[0].reason == "no_inventory"

    run(story)


def test_one_server_is_not_larger_than_its_host(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2, ratio=16.0)
        outcome = await books.claim("s1", "a", size={"VCPU": 3})
        assert outcome.refused[0].reason == "wrong_unit"
        for number in range(32):
            await books.claim(f"s{number}", "a", size={"VCPU": 1})
        assert await books.used("a") == 32
        assert isinstance(await books.claim("s33", "a", size={"VCPU": 1}), NotClaimed)

    run(story)


def test_a_host_that_accepts_no_more_is_passed_over(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        assert await books.accept("a", False)
        outcome = await books.claim("s1", "a", "b")
        assert outcome.provider == provider_of("b") and outcome.refused[0].reason == "not_accepting"
        assert not await books.accept("a", False), "nothing changed"
        await books.accept("a", True)
        assert (await books.claim("s2", "a")).provider == provider_of("a")

    run(story)


def test_claims_bump_generations(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        a, b = await books.generation("a"), await books.generation("b")
        await books.claim("s1", "a")
        await books.claim("s1", "b")
        assert (await books.generation("a"), await books.generation("b")) == (a + 2, b + 1)
        consumer = (await books.consumers())["s1"]
        assert (consumer["generation"], consumer["project_id"], consumer["user_id"]) == (2, "demo", "alice")

    run(story)


def test_release_frees_everything_of_all_consumers(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_move("s1", "m1", "c")
        await books.claim("s2", "a")
        assert await books.release("s1", "m1", "m0") == Released(consumers=2, rows=9)
        assert await books.places() == {"s2": {("a", "")}}
        assert set(await books.consumers()) == {"s2"}
        assert await books.release("s1") == Released(0, 0), "nothing to release is an outcome"

    run(story)


ANTI = GroupRule("web", "anti-affinity")
PAIRS = GroupRule("web", "anti-affinity", max_per_host=2)
TOGETHER = GroupRule("db", "affinity")


def test_anti_affinity_counts_servers_per_host(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("w1", "a", group=ANTI)
        second = await books.claim("w2", "a", "b", group=ANTI)
        assert second.provider == provider_of("b")
        assert second.refused[0].sentence == (
            "provider provider-of-a: anti-affinity group web already has 1 there and allows 1"
        )
        assert isinstance(await books.claim("w3", "a", "b", group=ANTI), NotClaimed)
        assert isinstance(await books.claim("w3", "a", "b", group=PAIRS), Claimed)
        assert await books.counted() == {("w1", "a"), ("w2", "b"), ("w3", "a")}
        await books.release("w1")
        assert await books.counted() == {("w2", "b"), ("w3", "a")}

    run(story)


def test_anti_affinity_holds_when_members_come_together(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        outcomes = await asyncio.gather(*(books.claim(f"w{n}", "a", "b", "c", group=ANTI) for n in range(6)))
        assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 3
        assert {host for _, host in await books.counted()} == {"a", "b", "c"}

    run(story)


def test_affinity_follows_the_first_member(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("d1", "b", group=TOGETHER)
        second = await books.claim("d2", "a", "b", group=TOGETHER)
        assert second.provider == provider_of("b") and second.refused[0].reason == "group"
        alone = await books.claim("d1", "a", group=TOGETHER)
        assert isinstance(alone, NotClaimed), "the other member is elsewhere"
        await books.release("d2")
        assert isinstance(await books.claim("d1", "a", group=TOGETHER), Claimed), "the last one may go where it likes"

    run(story)


def test_soft_policies_are_counted_and_never_refused(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a")
        soft = GroupRule("web", "soft-anti-affinity")
        for server in ("w1", "w2"):
            assert isinstance(await books.claim(server, "a", group=soft), Claimed)
        assert await books.counted() == {("w1", "a"), ("w2", "a")}

    run(story)


HOST, CHILD = 1, 2  # providers: a host, and one of its tree that gives what the host does not
GIVES, HAD = {(HOST, 0, ""): 1, (CHILD, 5, ""): 1}, {(HOST, 0, ""): 1}


@pytest.mark.parametrize(
    ("rows", "own", "expected"),
    [
        (GIVES, {}, {HOST, CHILD}),
        ({(CHILD, 5, ""): 1}, {}, {HOST, CHILD}),
        (GIVES, HAD, {HOST, CHILD}),
        (GIVES, GIVES, set()),
        ({(HOST, 0, ""): 2}, HAD, {HOST}),
        (HAD, GIVES, set()),
    ],
    ids=["new", "only of another provider", "more of another provider", "the same again", "more of the host", "less"],
)
def test_the_host_itself_must_accept_whoever_gives(rows: Rows, own: Rows, expected: set[int]) -> None:
    """Under the ledger's lock: somebody may close the host between the look and the write."""
    provider = ProviderCapacity(HOST, "host", HOST, True)
    assert must_accept(CandidateChoice(provider, rows), own) == expected
