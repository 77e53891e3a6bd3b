"""The search in its other forms: of one provider alone, tree by tree, in order, by turns; against brute force."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from kilonova.placement.candidates import Candidate, CandidateQuery, Group, Options, find, in_trees, standing_alone
from kilonova.placement.candidates.search import FIRST_BLOCK, matching
from kilonova.placement.snapshot import PlacementSnapshot
from tests.placement.test_candidates import PLAIN, VERSIONS, key_of, keys_of, with_limit
from tests.placement.worlds import (
    SHARES,
    Key,
    Offer,
    Provider,
    World,
    all_candidates,
    listed,
    random_query,
    random_world,
    snapshot_of_world,
)

VCPU = Group(resources={"VCPU": 1})


def a_case(number: int) -> tuple[random.Random, World, CandidateQuery, PlacementSnapshot]:
    chance = random.Random(number)
    world = random_world(chance)
    return chance, world, random_query(chance, world, chance.choice(VERSIONS)), snapshot_of_world(world)


def keys(snapshot: PlacementSnapshot, candidates: Iterable[Candidate]) -> set[Key]:
    return {key_of(snapshot, candidate) for candidate in candidates}


@pytest.mark.parametrize("hundred", range(5))
def test_lists_have_the_providers_that_match_alone(hundred: int) -> None:
    for number in range(100 * hundred, 100 * hundred + 100):
        _, world, query, snapshot = a_case(number)
        for group in query.groups:
            expected = listed(world, group)
            assert {snapshot.uuids[at] for at in matching(snapshot, group)} == expected
            for uuid in (*world.providers, "nobody"):
                assert [snapshot.uuids[at] for at in matching(snapshot, group, uuid)] == [uuid] * (uuid in expected)


@pytest.mark.parametrize("hundred", range(10))
def test_trees_have_the_candidates_that_no_provider_is_alone(hundred: int) -> None:
    """What the scheduler asks: all that stand alone at once, the other trees one by one, those of some hosts only."""
    for number in range(100 * hundred, 100 * hundred + 100):
        chance, world, query, snapshot = a_case(number)
        alone = standing_alone(snapshot, query)
        everywhere = np.ones(snapshot.rows, dtype=np.bool_)
        by_root = {at: keys(snapshot, found) for at, found in in_trees(snapshot, query, everywhere, alone)}
        found = set().union(*by_root.values())
        handled = {snapshot.uuids[at] for at in np.flatnonzero(alone)}
        if query.nested or not world.nested:
            expected = all_candidates(world, query)
            assert found == {key for key in expected if not {uuid for uuid, _, _ in key[0]} & handled}
        some = np.array([chance.random() < 0.5 for _ in range(snapshot.rows)], dtype=np.bool_)
        of_some = {at: keys(snapshot, candidates) for at, candidates in in_trees(snapshot, query, some, alone)}
        assert of_some == {at: found for at, found in by_root.items() if some[at]}


@pytest.mark.parametrize("hundred", range(5))
def test_candidates_come_in_the_order_of_their_trees(hundred: int) -> None:
    """One tree after the other, or of each tree one by turns; at most as many as the option says, at random if it says
    so."""
    for number in range(100 * hundred, 100 * hundred + 100):
        chance, world, query, snapshot = a_case(number)
        if any(provider.shares for provider in world.providers.values()) or not query.nested:
            continue
        found = find(snapshot, query, PLAIN, chance).candidates
        roots = [int(snapshot.root[next(iter(candidate.allocations))]) for candidate in found]
        assert roots == sorted(roots)
        turns = Options(allocation_candidates_generation_strategy="breadth-first")
        by_turns = find(snapshot, query, turns, chance).candidates
        order = [int(snapshot.root[next(iter(candidate.allocations))]) for candidate in by_turns]
        rounds = [order[:at].count(root) for at, root in enumerate(order)]
        assert rounds == sorted(rounds) and keys(snapshot, by_turns) == keys(snapshot, found)
        for most in (0, -1, 1, 3):
            options = Options(max_allocation_candidates=most)
            some = keys_of(snapshot, find(snapshot, query, options, chance).candidates)
            assert some == keys_of(snapshot, found)[: most if most > 0 else None]


def flat(count: int, **special: Provider) -> PlacementSnapshot:
    world = World(
        {f"p{n}": Provider(f"p{n}", f"p{n}", offers={"VCPU": Offer(n + 1, max_unit=n + 1)}) for n in range(count)}
        | special
    )
    return snapshot_of_world(world)


@pytest.mark.parametrize("count", [1, FIRST_BLOCK, FIRST_BLOCK + 1, 4 * FIRST_BLOCK])
def test_all_providers_are_searched_however_many_there_are(count: int) -> None:
    """In their order, also with a tree among them, for which another search is needed."""
    child = Provider("child", "child", f"p{count // 2}", offers={"DISK_GB": Offer(1)})
    for snapshot in (flat(count), flat(count, child=child)):
        for amount in (1, count, count + 1):
            query = CandidateQuery(groups=(Group(resources={"VCPU": amount}),))
            found = find(snapshot, query, PLAIN, random.Random()).candidates
            assert [dict(one.allocations) for one in found] == [
                {at: {"VCPU": amount}} for at in range(count) if at + 1 >= amount
            ]


@pytest.mark.parametrize("limit", [None, 1, 3, 9])
def test_a_random_sample_is_as_large_as_the_limit(limit: int | None) -> None:
    snapshot = flat(5)
    query = CandidateQuery(groups=(VCPU,), limit=limit)
    found = find(snapshot, query, Options(randomize_allocation_candidates=True), random.Random(3))
    assert len(keys(snapshot, found.candidates)) == len(found.candidates) == min(limit or 5, 5)
    assert len(find(snapshot, with_limit(query, 2), PLAIN, random.Random()).candidates) == 2


def test_candidates_that_are_listed_late_are_as_those_of_a_list() -> None:
    """A long answer is made place by place: one of them, some of them, all of them."""
    snapshot = flat(4)
    found = find(snapshot, CandidateQuery(groups=(VCPU,)), PLAIN, random.Random())
    every = list(found.candidates)
    assert found.candidates[2] == every[2] == Candidate({2: {"VCPU": 1}}, {"": (2,)})
    assert found.candidates[1:3] == every[1:3] and len(found.candidates) == 4
    assert found.summaries == [0, 1, 2, 3]


def test_a_provider_that_others_share_with_does_not_stand_alone() -> None:
    """Unless what is shared is not asked for."""
    near = frozenset(["near"])
    pool = Provider("pool", "pool", None, {"DISK_GB": Offer(9)}, frozenset([SHARES]), near)
    host = Provider("host", "host", None, {"VCPU": Offer(9), "DISK_GB": Offer(9)}, aggregates=near)
    far = Provider("far", "far", None, {"VCPU": Offer(9), "DISK_GB": Offer(9)})
    snapshot = snapshot_of_world(World({each.uuid: each for each in (pool, host, far)}))

    def alone(**resources: int) -> list[str]:
        query = CandidateQuery(groups=(Group(resources=resources),))
        return [snapshot.uuids[at] for at in np.flatnonzero(standing_alone(snapshot, query))]

    assert alone(VCPU=1, DISK_GB=1) == ["far"]
    assert alone(VCPU=1) == ["pool", "host", "far"]
    several = CandidateQuery(groups=(VCPU, Group(suffix="_1", resources={"VCPU": 1})))
    with_suffix = CandidateQuery(groups=(Group(suffix="_1", resources={"VCPU": 1}),))
    assert not standing_alone(snapshot, several).any() and not standing_alone(snapshot, with_suffix).any()


def test_a_query_that_asks_for_nothing_has_no_candidates() -> None:
    """A flavor may ask for no resources at all."""
    snapshot = flat(2)
    everywhere, nowhere = np.ones(snapshot.rows, dtype=np.bool_), np.zeros(snapshot.rows, dtype=np.bool_)
    assert list(in_trees(snapshot, CandidateQuery(groups=(Group(),)), everywhere, nowhere)) == []
