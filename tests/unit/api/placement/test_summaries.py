"""Summaries that are kept between answers are always those of now."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kilonova.api.placement import summaries
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.snapshot_reading import SnapshotChanges
from tests.placement.worlds import World, changes_of_world, random_world, snapshot_of_world

NEWEST = (1, 39)


def told(snapshot: PlacementSnapshot, version: tuple[int, int] = NEWEST) -> dict[str, Any]:
    texts = summaries.summary_texts(snapshot, sorted(snapshot.index.values()), (), version)
    found: dict[str, Any] = msgspec.json.decode(b"{" + b"".join(texts) + b"}")
    return found


def change_something(chance: random.Random, world: World) -> SnapshotChanges:
    uuid = chance.choice(list(world.providers))
    provider = world.providers[uuid]
    what = chance.choice(["used", "traits", "offers", "removed"])
    if what == "removed" and not any(other.parent == uuid for other in world.providers.values()):
        del world.providers[uuid]
        return changes_of_world(world, only=(), removed=[uuid])
    if what == "traits":
        provider.traits = frozenset(chance.sample(["HW_CPU_X86_AVX", "CUSTOM_A", "CUSTOM_B"], chance.randrange(3)))
    elif what == "offers":
        provider.offers = dict(list(provider.offers.items())[:1])
    else:
        for offer in provider.offers.values():
            offer.used += 1
    return changes_of_world(world, only=[uuid])


@pytest.mark.parametrize("seed", range(30))
def test_follow_every_change(seed: int) -> None:
    chance = random.Random(seed)
    world = random_world(chance)
    snapshot = snapshot_of_world(world)
    for _ in range(30):
        snapshot.take(change_something(chance, world))
        if len(world.providers) < 2:
            more = random_world(chance).providers
            world.providers = {**more, **world.providers}
            snapshot.take(changes_of_world(world, only=more.keys()))
        assert told(snapshot) == told(snapshot_of_world(world))


def test_are_not_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = summaries._written

    def counted(snapshot: PlacementSnapshot, places: list[int], *rest: Any) -> Iterator[str]:
        written.extend(places)
        return write(snapshot, places, *rest)

    monkeypatch.setattr(summaries, "_written", counted)
    world = random_world(random.Random(1))
    snapshot = snapshot_of_world(world)
    told(snapshot)
    told(snapshot)
    assert sorted(written) == sorted(snapshot.index.values())


def test_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "MOST_CACHED", 3)
    for seed in range(5):
        snapshot = snapshot_of_world(random_world(random.Random(seed)))
        for at in snapshot.index.values():
            summaries.summary_texts(snapshot, [at], (), NEWEST)
        assert len(summaries._CACHES[snapshot]) <= 3
        assert told(snapshot) == told(snapshot, (1, 29))
