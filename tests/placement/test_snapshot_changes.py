"""A snapshot that takes change after change is as one that is made of the result; without a database."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kilonova.placement.snapshot import FIRST_ROWS, ClassColumns, PlacementSnapshot, snapshot_of
from kilonova.placement.snapshot_reading import SnapshotChanges
from tests.placement.test_snapshot import shown
from tests.placement.worlds import (
    AGGREGATES,
    CLASSES,
    SHARES,
    TRAITS,
    Offer,
    Provider,
    World,
    changes_of_world,
    random_world,
    snapshot_of_world,
)

PROVIDERS = 6


def everything(snapshot: PlacementSnapshot) -> dict[str, Any]:
    """By the providers' uuids: places may differ."""
    trees, uuids = snapshot.trees, snapshot.uuids
    return {
        "providers": shown(snapshot),
        "classes": {name: columns.count for name, columns in snapshot.classes.items()},
        "traits": {uuid: snapshot.traits[at] for uuid, at in snapshot.index.items()},
        "nested": trees.nested,
        "single": {uuids[at] for at in np.flatnonzero(trees.single)},
        "reached": {uuids[at]: {uuids[root] for root in trees.reached(at)} for at in trees.sharing},
        "names": (set(snapshot.with_trait), set(snapshot.in_aggregate)),
    }


def assert_trees(snapshot: PlacementSnapshot, world: World) -> None:
    """By the world itself."""
    trees, uuids = snapshot.trees, snapshot.uuids
    sizes = Counter(world.root(uuid) for uuid in world.providers)
    assert trees.nested is world.nested
    assert {uuids[at] for at in np.flatnonzero(trees.single)} == {root for root, size in sizes.items() if size == 1}
    sharing = {uuid for uuid, provider in world.providers.items() if provider.shares}
    assert {uuids[at] for at in trees.sharing} == sharing
    for at in trees.sharing:
        provider = world.providers[uuids[at]]
        assert {uuids[root] for root in trees.reached(at)} == {root for root in sizes if world.reaches(provider, root)}


def fresh(world: World) -> dict[str, Any]:
    return everything(snapshot_of_world(world))


def children(world: World, uuid: str) -> list[str]:
    return [other.uuid for other in world.providers.values() if other.parent == uuid]


def change_something(chance: random.Random, world: World) -> SnapshotChanges:
    """Of one provider, or of one and all below it."""
    uuid = chance.choice(list(world.providers))
    provider = world.providers[uuid]
    match chance.randrange(8):
        case 0 if not children(world, uuid) and len(world.providers) > 2:
            del world.providers[uuid]
            return changes_of_world(world, only=(), removed=[uuid])
        case 1 if len(world.providers) < PROVIDERS:
            added = Provider(f"new-{chance.random()}", "new", chance.choice([None, uuid]), {"VCPU": Offer(3)})
            world.providers[added.uuid] = added
            return changes_of_world(world, only=[added.uuid])
        case 2:
            provider.traits = frozenset(name for name in (*TRAITS, SHARES) if chance.random() < 0.4)
        case 3:
            provider.aggregates = frozenset(name for name in AGGREGATES if chance.random() < 0.4)
        case 4:
            provider.offers = {name: Offer(chance.randint(1, 9)) for name in CLASSES if chance.random() < 0.5}
        case 5:
            above = chance.choice([None, *(other for other in world.providers if uuid not in world.line(other))])
            provider.parent = above
            below = [other for other in world.providers if uuid in world.line(other)]
            return changes_of_world(world, only=below)
        case _:
            for offer in provider.offers.values():
                offer.used += 1
    return changes_of_world(world, only=[uuid])


@pytest.mark.parametrize("seed", range(25))
def test_every_change_is_followed(seed: int) -> None:
    chance = random.Random(seed)
    world = random_world(chance)
    snapshot = snapshot_of_world(world)
    assert everything(snapshot) == fresh(world)
    for _ in range(20):
        before, places = everything(snapshot), dict(snapshot.index)
        layout, copied = snapshot.layout, snapshot.copied()
        snapshot.take(changes_of_world(world, only=()))
        assert (everything(snapshot), snapshot.layout) == (before, layout), "nothing has changed"
        snapshot.take(change_something(chance, world))
        assert everything(snapshot) == fresh(world)
        assert_trees(snapshot, world)
        assert (snapshot.layout != layout) == (snapshot.index != places)
        assert everything(copied) == before, "a copy does not change"
        copied.take(changes_of_world(world, removed=sorted(places.keys() - world.providers.keys())))
        assert everything(copied) == everything(snapshot), "and goes its own way"


def test_a_change_raises_the_number_of_those_that_were_read() -> None:
    world = World({name: Provider(name, name, offers={"VCPU": Offer(4)}) for name in "abc"})
    snapshot = snapshot_of_world(world)
    first = {name: int(snapshot.changed[snapshot.index[name]]) for name in "abc"}
    snapshot.take(changes_of_world(world, only=["b"]))
    second = {name: int(snapshot.changed[snapshot.index[name]]) for name in "abc"}
    assert (second["a"], second["c"]) == (first["a"], first["c"]) and second["b"] > first["b"]


def test_a_trial_has_its_own_use_of_the_named_classes() -> None:
    offers = {"VCPU": Offer(4), "DISK_GB": Offer(4)}
    snapshot = snapshot_of_world(World({"a": Provider("a", "a", offers=offers)}))
    trial = snapshot.with_own_use(["VCPU", "NOBODY"])
    used = ClassColumns.NAMES.index("used")
    for name in ("VCPU", "DISK_GB"):
        trial.classes[name].table[used, 0] = 3
    assert {name: int(columns.table[used, 0]) for name, columns in snapshot.classes.items()} == {
        "VCPU": 0,
        "DISK_GB": 3,
    }
    assert trial.classes.keys() == snapshot.classes.keys()


@pytest.mark.parametrize("most", [FIRST_ROWS - 1, FIRST_ROWS, FIRST_ROWS + 1, 3 * FIRST_ROWS, 5 * FIRST_ROWS + 1])
def test_any_number_of_providers_has_its_place(most: int) -> None:
    """Together, or one after the other."""
    traits = [frozenset(), frozenset([TRAITS[0]]), frozenset([SHARES])]
    providers = [
        Provider(
            f"p{n}", f"n{n}", f"p{n - 1}" if n % 5 == 4 else None, {"VCPU": Offer(n + 1)}, traits[n % 3], frozenset("g")
        )
        for n in range(most)
    ]
    world = World({each.uuid: each for each in providers})
    together, one_by_one = snapshot_of_world(world), PlacementSnapshot()
    for each in providers:
        one_by_one.take(changes_of_world(world, only=[each.uuid]))
    assert len(together) == len(one_by_one) == together.rows == most
    assert everything(one_by_one) == everything(together)
    assert [together.classes["VCPU"].table[0, together.index[f"p{n}"]] for n in range(most)] == list(range(1, most + 1))


def test_a_place_is_given_to_the_next_provider_and_has_nothing_of_the_one_before() -> None:
    aggregates = frozenset(AGGREGATES)
    old = Provider("old", "old", None, {"VCPU": Offer(4)}, frozenset([SHARES]), aggregates)
    stays = Provider("stays", "stays", None, {"DISK_GB": Offer(4)})
    world = World({"old": old, "stays": stays})
    snapshot = snapshot_of_world(world)
    del world.providers["old"]
    gone = changes_of_world(world, only=(), removed=["old", "unknown"])
    snapshot.take(gone)
    at = 0
    assert (snapshot.uuids[at], snapshot.names[at], int(snapshot.root[at]), int(snapshot.parent[at])) == (
        "",
        "",
        at,
        -1,
    )
    assert not snapshot.alive[at] and not snapshot.accepting[at] and set(snapshot.classes) == {"DISK_GB"}
    world.providers["new"] = Provider("new", "new", "stays", {"DISK_GB": Offer(4)})
    snapshot.take(changes_of_world(world, only=["new"]))
    assert snapshot.index["new"] == at and snapshot.rows == 2
    assert everything(snapshot) == fresh(world)


def test_sets_of_names_that_nobody_has_any_more_are_forgotten() -> None:
    """Each provider may have had any set of traits before; providers with the same traits share one tuple."""
    world = World({name: Provider(name, name) for name in "ab"})
    snapshot = snapshot_of_world(world)
    for number in range(10 * FIRST_ROWS):
        for provider in world.providers.values():
            provider.traits = frozenset([f"CUSTOM_{number}", "HW_A"])
        snapshot.take(changes_of_world(world))
        at = [snapshot.index[name] for name in "ab"]
        assert snapshot.traits[at[0]] is snapshot.traits[at[1]] and snapshot.traits[at[0]] == (
            "HW_A",
            f"CUSTOM_{number}",
        )
        assert len(snapshot._sets) <= 2 * snapshot.rows + FIRST_ROWS
    assert everything(snapshot) == fresh(world)


def test_all_users_of_a_database_see_one_snapshot() -> None:
    class Database:
        pass

    one: Any = Database()
    other: Any = Database()
    assert snapshot_of(one) is snapshot_of(one) and snapshot_of(one) is not snapshot_of(other)
