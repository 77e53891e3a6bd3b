"""Candidates on random worlds are exactly those that brute force finds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.placement.candidates import Candidate, CandidateQuery, Group, Options, find
from kilonova.placement.snapshot import PlacementSnapshot
from tests.placement.worlds import (
    SHARES,
    Key,
    Offer,
    Provider,
    World,
    all_candidates,
    random_query,
    random_world,
    snapshot_of_world,
    summarised,
)

VERSIONS = [10, 17, 21, 24, 25, 28, 29, 31, 33, 35, 36, 39]
PLAIN = Options()


def key_of(snapshot: PlacementSnapshot, candidate: Candidate) -> Key:
    uuids = snapshot.uuids
    amounts = frozenset(
        (uuids[at], name, n) for at, resources in candidate.allocations.items() for name, n in resources.items()
    )
    mappings = frozenset((suffix, frozenset(uuids[at] for at in at_)) for suffix, at_ in candidate.mappings.items())
    return amounts, mappings


def keys_of(snapshot: PlacementSnapshot, candidates: Sequence[Candidate]) -> list[Key]:
    return [key_of(snapshot, candidate) for candidate in candidates]


def with_limit(query: CandidateQuery, limit: int) -> CandidateQuery:
    return CandidateQuery(**{name: getattr(query, name) for name in CandidateQuery.__slots__} | {"limit": limit})


def check(chance: random.Random, version: int, limit: int) -> int:
    """How many candidates there were."""
    world = random_world(chance)
    query = random_query(chance, world, version)
    snapshot = snapshot_of_world(world)
    expected = all_candidates(world, query)
    found = find(snapshot, query, PLAIN, chance)
    keys = keys_of(snapshot, found.candidates)
    assert len(keys) == len(set(keys))
    assert set(keys) == expected
    assert {snapshot.uuids[at] for at in found.summaries} == summarised(world, query, expected, expected)
    some = find(snapshot, with_limit(query, limit), PLAIN, chance)
    kept = keys_of(snapshot, some.candidates)
    assert kept == keys[:limit], "the same order, the first ones"
    assert {snapshot.uuids[at] for at in some.summaries} == summarised(world, query, set(kept), expected)
    return len(keys)


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(VERSIONS), st.integers(1, 5))
def test_are_what_brute_force_finds(chance: random.Random, version: int, limit: int) -> None:
    """Few worlds, but a small one remains when it fails."""
    check(chance, version, limit)


@pytest.mark.parametrize("hundred", range(50))
def test_are_what_brute_force_finds_in_many_worlds(hundred: int) -> None:
    counts = []
    for number in range(100 * hundred, 100 * hundred + 100):
        chance = random.Random(number)
        counts.append(check(chance, chance.choice(VERSIONS), chance.randint(1, 5)))
    assert sum(count > 0 for count in counts) > 20, "worlds in which nothing can be had show little"


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.booleans())
def test_options_change_the_order_and_the_number_only(chance: random.Random, most: int, turns: bool) -> None:
    world = random_world(chance)
    query = random_query(chance, world)
    snapshot = snapshot_of_world(world)
    expected = all_candidates(world, query)
    strategy = "breadth-first" if turns else "depth-first"
    mixed = Options(randomize_allocation_candidates=True, allocation_candidates_generation_strategy=strategy)
    assert set(keys_of(snapshot, find(snapshot, query, mixed, chance).candidates)) == expected
    bounded = Options(max_allocation_candidates=most, allocation_candidates_generation_strategy=strategy)
    some = keys_of(snapshot, find(snapshot, query, bounded, chance).candidates)
    assert len(some) == min(most, len(expected)) and set(some) <= expected


def _uuid(number: int) -> str:
    return f"b0000000-0000-0000-0000-{number:012}"


def flat(count: int) -> World:
    return World({_uuid(n): Provider(_uuid(n), f"p{n}", offers={"VCPU": Offer(4)}) for n in range(count)})


def test_random_ones_are_a_sample_of_all() -> None:
    snapshot = snapshot_of_world(flat(40))
    query = CandidateQuery(groups=(Group(resources={"VCPU": 1}),), limit=5)
    options = Options(randomize_allocation_candidates=True)
    taken = [find(snapshot, query, options, random.Random(seed)).candidates for seed in range(30)]
    places = {at for candidates in taken for candidate in candidates for at in candidate.allocations}
    assert all(len(candidates) == 5 for candidates in taken) and len(places) > 30
    first = [find(snapshot, query, PLAIN, random.Random(seed)).summaries for seed in (1, 2)]
    assert first == [[0, 1, 2, 3, 4]] * 2, "without the option chance has no say"


def test_breadth_first_gives_every_tree_its_turn() -> None:
    world = flat(2)
    for parent in list(world.providers):
        for child in range(4):
            uuid = _uuid(100 + 10 * len(world.providers) + child)
            world.providers[uuid] = Provider(uuid, uuid, parent, {"SRIOV_NET_VF": Offer(1)})
    query = CandidateQuery(groups=(Group(resources={"VCPU": 1, "SRIOV_NET_VF": 1}),), limit=2)
    snapshot = snapshot_of_world(world)
    for strategy, trees in (("breadth-first", 2), ("depth-first", 1)):
        options = Options(allocation_candidates_generation_strategy=strategy)
        found = find(snapshot, query, options, random.Random())
        roots = {int(snapshot.root[at]) for candidate in found.candidates for at in candidate.allocations}
        assert len(roots) == trees, strategy


def devices(count: int) -> PlacementSnapshot:
    host = Provider(_uuid(0), "host", offers={"VCPU": Offer(8)})
    below = [Provider(_uuid(n), f"gpu{n}", host.uuid, {"SRIOV_NET_VF": Offer(1)}) for n in range(1, count + 1)]
    return snapshot_of_world(World({each.uuid: each for each in (host, *below)}))


def one_device_each(count: int) -> tuple[Group, ...]:
    return tuple(Group(suffix=f"_{n}", resources={"SRIOV_NET_VF": 1}) for n in range(count))


@pytest.mark.parametrize("isolate", [True, False])
def test_many_equal_children_and_groups_end_soon(isolate: bool) -> None:
    """A product would try 20 to the power of 20."""
    snapshot = devices(20)
    found = find(
        snapshot, CandidateQuery(groups=one_device_each(20), isolate=isolate, limit=1000), PLAIN, random.Random()
    )
    assert len(found.candidates) == 1000
    too_many = CandidateQuery(groups=one_device_each(21), isolate=isolate, limit=1)
    assert not find(snapshot, too_many, PLAIN, random.Random()).candidates


def test_as_many_groups_as_an_address_can_hold() -> None:
    snapshot = snapshot_of_world(
        World({_uuid(0): Provider(_uuid(0), "p", offers={"SRIOV_NET_VF": Offer(5000, max_unit=5000)})})
    )
    (candidate,) = find(snapshot, CandidateQuery(groups=one_device_each(3000)), PLAIN, random.Random()).candidates
    assert candidate.allocations == {0: {"SRIOV_NET_VF": 3000}} and len(candidate.mappings) == 3000


def test_a_shared_disk_serves_every_host_of_its_aggregate() -> None:
    aggregate = frozenset(["a"])
    disk = Provider(_uuid(0), "disk", offers={"DISK_GB": Offer(100)}, traits=frozenset([SHARES]), aggregates=aggregate)
    hosts = [Provider(_uuid(n), f"h{n}", offers={"VCPU": Offer(4)}, aggregates=aggregate) for n in (1, 2)]
    stranger = Provider(_uuid(3), "h3", offers={"VCPU": Offer(4)})
    snapshot = snapshot_of_world(World({each.uuid: each for each in (disk, *hosts, stranger)}))
    found = find(
        snapshot, CandidateQuery(groups=(Group(resources={"VCPU": 1, "DISK_GB": 10}),)), PLAIN, random.Random()
    )
    assert [sorted(snapshot.names[at] for at in candidate.allocations) for candidate in found.candidates] == [
        ["disk", "h1"],
        ["disk", "h2"],
    ]
    assert sorted(snapshot.names[at] for at in found.summaries) == ["disk", "h1", "h2"]


def test_an_aggregate_of_the_root_does_not_count_for_a_sharing_provider_of_another_tree() -> None:
    near, wanted = frozenset(["near"]), frozenset(["wanted"])
    host = Provider(_uuid(1), "host", offers={"VCPU": Offer(4)}, aggregates=near | wanted)
    query = CandidateQuery(groups=(Group(resources={"VCPU": 1, "DISK_GB": 10}, member_of=(wanted,)),))
    for aggregates, candidates in ((near, 0), (near | wanted, 1)):
        disk = Provider(_uuid(0), "disk", None, {"DISK_GB": Offer(100)}, frozenset([SHARES]), aggregates)
        snapshot = snapshot_of_world(World({each.uuid: each for each in (disk, host)}))
        assert len(find(snapshot, query, PLAIN, random.Random()).candidates) == candidates


def test_a_tree_makes_no_difference_to_a_group_without_resources_as_long_as_it_is_there() -> None:
    """As the original; the comparison with it would show another answer."""
    first = Provider(_uuid(1), "first", offers={"VCPU": Offer(4)}, traits=frozenset(["CUSTOM_A"]))
    second = Provider(_uuid(2), "second", offers={"VCPU": Offer(4)})
    snapshot = snapshot_of_world(World({each.uuid: each for each in (first, second)}))
    for tree, candidates in ((first.uuid, 1), (second.uuid, 1), (_uuid(3), 0)):
        bare = Group(suffix="_BARE", required=(frozenset(["CUSTOM_A"]),), in_tree=tree)
        groups = (Group(suffix="_FULL", resources={"VCPU": 1}), bare)
        query = CandidateQuery(groups=groups, same_subtrees=(frozenset(["_FULL", "_BARE"]),))
        assert len(find(snapshot, query, PLAIN, random.Random()).candidates) == candidates
