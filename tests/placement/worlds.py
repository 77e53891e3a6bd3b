"""Small random worlds of providers and random queries, as plain records, and what they come to by brute force.

The oracle tries every provider for every seat of every tree and only then asks whether that is allowed: slow, and
without any of the shortcuts that it is there to check.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kilonova.placement.candidates import CandidateQuery, Group
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.snapshot_reading import SnapshotChanges

CLASSES = ("VCPU", "DISK_GB", "SRIOV_NET_VF")
SHARES = "MISC_SHARES_VIA_AGGREGATE"
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = tuple(f"a0000000-0000-0000-0000-00000000000{number}" for number in range(3))
NOWHERE = "f0000000-0000-0000-0000-000000000000"  # no provider and no aggregate has this uuid

Key = tuple[frozenset[tuple[str, str, int]], frozenset[tuple[str, frozenset[str]]]]


@dataclass
class Offer:
    total: int
    used: int = 0
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 100
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        return int((self.total - self.reserved) * self.allocation_ratio)

    def fits(self, amount: int) -> bool:
        in_units = self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0
        return in_units and self.used + amount <= self.capacity


@dataclass
class Provider:
    uuid: str
    name: str
    parent: str | None = None
    offers: dict[str, Offer] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def shares(self) -> bool:
        return SHARES in self.traits


@dataclass
class World:
    providers: dict[str, Provider]

    def line(self, uuid: str) -> list[str]:
        """A provider and all above it, the root last."""
        parent = self.providers[uuid].parent
        return [uuid] if parent is None else [uuid, *self.line(parent)]

    def root(self, uuid: str) -> str:
        return self.line(uuid)[-1]

    @property
    def nested(self) -> bool:
        return any(provider.parent for provider in self.providers.values())

    def reaches(self, provider: Provider, anchor: str) -> bool:
        """It shares with somebody in that tree."""
        return provider.shares and any(
            provider.aggregates & other.aggregates
            for other in self.providers.values()
            if self.root(other.uuid) == anchor
        )


# --- by brute force -------------------------------------------------------------------------------------------------


def inside(provider: Provider, group: Group) -> bool:
    return all(provider.aggregates & names for names in group.member_of)


def may_give(world: World, group: Group, provider: Provider, anchor: str, resources: dict[str, int]) -> bool:
    """What can be said of one provider for one seat."""
    own = world.root(provider.uuid) == anchor
    root = world.providers[anchor]
    if not all(name in provider.offers and provider.offers[name].fits(n) for name, n in resources.items()):
        return False
    if provider.traits & group.forbidden or provider.aggregates & group.outside:
        return False
    if group.in_tree and group.in_tree not in world.providers:
        return False
    if group.in_tree and resources and world.root(group.in_tree) != world.root(provider.uuid):
        return False
    if group.suffix:
        has_traits = all(provider.traits & names for names in group.required)
        asked = bool(resources or group.required or group.member_of)
        return asked and has_traits and inside(provider, group) and (own or world.reaches(provider, anchor))
    if root.aggregates & group.outside:
        return False
    if own:
        return inside(provider, group) or inside(root, group)
    return not group.in_tree and inside(provider, group) and world.reaches(provider, anchor)


def is_allowed(world: World, query: CandidateQuery, taken: list[tuple[Group, dict[str, int], str]]) -> bool:
    """What can only be said of all seats together."""
    by_suffix: dict[str, set[str]] = {}
    amounts: Counter[tuple[str, str]] = Counter()
    for group, resources, uuid in taken:
        by_suffix.setdefault(group.suffix, set()).add(uuid)
        for name, amount in resources.items():
            amounts[uuid, name] += amount
    for (uuid, name), amount in amounts.items():
        offer = world.providers[uuid].offers[name]
        if offer.used + amount > offer.capacity or amount > offer.max_unit:
            return False
    for group in query.groups:
        together = frozenset().union(*(world.providers[uuid].traits for uuid in by_suffix[group.suffix]))
        if not all(together & names for names in group.required):
            return False
    apart = [uuid for group, _, uuid in taken if group.suffix]
    if query.isolate and len(apart) != len(set(apart)):
        return False
    for suffixes in query.same_subtrees:
        places = set().union(*(by_suffix[suffix] for suffix in suffixes))
        if not any(all(above in world.line(uuid) for uuid in places) for above in places):
            return False
    return True


def all_candidates(world: World, query: CandidateQuery) -> set[Key]:
    found = set()
    seats: list[tuple[Group, dict[str, int]]] = []
    for group in query.groups:
        each = [dict(group.resources)] if group.suffix else [{name: n} for name, n in group.resources.items()]
        seats += [(group, resources) for resources in each]
    for anchor, root in world.providers.items():
        if root.parent or not query.root_required <= root.traits or query.root_forbidden & root.traits:
            continue
        takers = [
            [p.uuid for p in world.providers.values() if may_give(world, group, p, anchor, resources)]
            for group, resources in seats
        ]
        for choice in itertools.product(*takers):
            taken = [(group, resources, uuid) for (group, resources), uuid in zip(seats, choice, strict=True)]
            if is_allowed(world, query, taken):
                found.add(_key(taken))
    if world.nested and not query.nested:
        found = {key for key in found if _one_of_each_tree(world, key)}
    return found


def _key(taken: list[tuple[Group, dict[str, int], str]]) -> Key:
    amounts: Counter[tuple[str, str]] = Counter()
    served: dict[str, set[str]] = {}
    for group, resources, uuid in taken:
        served.setdefault(group.suffix, set()).add(uuid)
        for name, amount in resources.items():
            amounts[uuid, name] += amount
    allocations = frozenset((uuid, name, amount) for (uuid, name), amount in amounts.items())
    return allocations, frozenset((suffix, frozenset(uuids)) for suffix, uuids in served.items())


def _one_of_each_tree(world: World, key: Key) -> bool:
    used = {uuid for uuid, _, _ in key[0]}
    return len({world.root(uuid) for uuid in used}) == len(used)


def summarised(world: World, query: CandidateQuery, kept: set[Key], found: set[Key]) -> set[str]:
    """Whose summaries belong to the candidates that were kept, of all that were found."""
    roots = {world.root(uuid) for key in kept for uuid, _, _ in key[0]}
    if world.nested and not query.nested:
        return {uuid for key in found for uuid, _, _ in key[0] if world.root(uuid) in roots}
    return {uuid for uuid in world.providers if world.root(uuid) in roots}


def listed(world: World, group: Group) -> set[str]:
    """GET /resource_providers: what is asked of one provider, alone."""
    return {
        provider.uuid
        for provider in world.providers.values()
        if all(name in provider.offers and provider.offers[name].fits(n) for name, n in group.resources.items())
        and all(provider.traits & names for names in group.required)
        and not provider.traits & group.forbidden
        and inside(provider, group)
        and not provider.aggregates & group.outside
        and (not group.in_tree or group.in_tree in world.providers)
        and (not group.in_tree or world.root(group.in_tree) == world.root(provider.uuid))
    }


# --- random worlds and queries --------------------------------------------------------------------------------------


def random_world(chance: random.Random, most: int = 7) -> World:
    providers: dict[str, Provider] = {}
    nested, sharing = chance.random() < 0.7, chance.random() < 0.5
    for number in range(chance.randint(2, most)):
        uuid = f"b0000000-0000-0000-0000-00000000000{number}"
        parent = chance.choice(list(providers)) if nested and providers and chance.random() < 0.6 else None
        traits = set(_some(chance, TRAITS, 0.4))
        if sharing and chance.random() < 0.35:
            traits.add(SHARES)
        offers = {name: _random_offer(chance) for name in _some(chance, CLASSES, 0.8)}
        aggregates = frozenset(_some(chance, AGGREGATES, 0.4))
        providers[uuid] = Provider(uuid, f"p{number}", parent, offers, frozenset(traits), aggregates)
    return World(providers)


def _random_offer(chance: random.Random) -> Offer:
    total = chance.randint(1, 12)
    offer = Offer(total, max_unit=chance.choice([total, total, total, total, total, 1, 2]))
    offer.reserved = int(total > 1 and chance.random() < 0.2)
    offer.allocation_ratio = chance.choice([1.0, 1.0, 1.5, 2.0])
    offer.step_size = chance.choice([1, 1, 1, 1, 1, 2])
    offer.min_unit = chance.choice([1, 1, 1, 1, 1, 2])
    least = offer.step_size * offer.min_unit
    if chance.random() < 0.5 and offer.fits(least):
        offer.used = least
    return offer


def random_query(chance: random.Random, world: World, version: int = 39) -> CandidateQuery:
    """One that the API would take at 1.`version`."""
    picky = chance.random() < 0.6
    suffixes: list[str] = [""] if chance.random() < 0.75 else []
    if version >= 25:
        names = ["1", "2", "3"] if version < 33 else ["1", "_X", "y-2"]
        suffixes += names[: chance.choice([0, 0, 0, 1, 1, 2, 2, 3])]
    groups = [_random_group(chance, world, suffix, version if picky else 10) for suffix in suffixes or [""]]
    subtrees: list[frozenset[str]] = []
    apart = [group.suffix for group in groups if group.suffix]
    if version >= 36 and apart and chance.random() < 0.4:
        subtrees = [
            frozenset(chance.sample(apart, chance.randint(1, len(apart)))) for _ in range(chance.choice([1, 1, 2]))
        ]
        if chance.random() < 0.5 and len(groups) > 1:
            groups = [_maybe_resourceless(chance, group, groups[0], subtrees) for group in groups]
    required, forbidden = _random_roots(chance) if version >= 35 else (frozenset(), frozenset())
    return CandidateQuery(
        groups=tuple(groups),
        isolate=chance.random() < 0.3,
        root_required=required,
        root_forbidden=forbidden,
        same_subtrees=tuple(subtrees),
        nested=version >= 29,
    )


def _random_group(chance: random.Random, world: World, suffix: str, version: int) -> Group:
    """Asks for little at a time: what nobody has is no test."""
    count = chance.choice([1, 1, 2, 3]) if not suffix else chance.choice([1, 1, 1, 2])
    resources = {name: chance.choice([1, 1, 1, 1, 2, 3]) for name in chance.sample(CLASSES, count)}
    required, forbidden = _random_traits(chance, version)
    may_be_outside = version >= 32 and chance.random() < 0.2
    return Group(
        suffix=suffix,
        resources=resources,
        required=required,
        forbidden=forbidden,
        member_of=tuple(_random_aggregates(chance, version)),
        outside=frozenset(chance.sample(AGGREGATES, chance.choice([1, 1, 2]))) if may_be_outside else frozenset(),
        in_tree=chance.choice([*world.providers, NOWHERE]) if version >= 31 and chance.random() < 0.1 else "",
    )


def _random_traits(chance: random.Random, version: int) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    names = (*TRAITS, SHARES)
    forbidden = frozenset([chance.choice(names)] if version >= 22 and chance.random() < 0.2 else [])
    required = [frozenset([chance.choice(names)])] if version >= 17 and chance.random() < 0.3 else []
    if version >= 39 and chance.random() < 0.2:
        required.append(frozenset(chance.sample(names, 2)))
    return tuple(each for each in required if not each <= forbidden), forbidden


def _random_aggregates(chance: random.Random, version: int) -> Iterator[frozenset[str]]:
    times = chance.choice([0, 0, 0, 0, 0, 1, 1, 2]) if version >= 24 else chance.choice([0, 0, 1])
    for _ in range(times if version >= 21 else 0):
        yield frozenset(chance.sample((*AGGREGATES, NOWHERE), chance.randint(1, 3)))


def _random_roots(chance: random.Random) -> tuple[frozenset[str], frozenset[str]]:
    names, what = (*TRAITS, SHARES), chance.random()
    required = frozenset(chance.sample(names, 1)) if what < 0.15 else frozenset()
    forbidden = frozenset(chance.sample(names, 1)) if 0.1 < what < 0.25 else frozenset()
    return required, forbidden - required


def _maybe_resourceless(chance: random.Random, group: Group, first: Group, subtrees: list[frozenset[str]]) -> Group:
    """Some condition has to be left: a group that asks for nothing cannot be told in a query."""
    named = any(group.suffix in subtree for subtree in subtrees)
    asks = group.required or group.forbidden or group.member_of or group.outside or group.in_tree
    if group is first or not named or not asks or chance.random() < 0.4:
        return group
    return Group(
        suffix=group.suffix,
        required=group.required,
        forbidden=group.forbidden,
        member_of=group.member_of,
        outside=group.outside,
        in_tree=group.in_tree,
    )


def _some(chance: random.Random, names: tuple[str, ...], part: float) -> list[str]:
    return [name for name in names if chance.random() < part]


# --- into a snapshot without a database -----------------------------------------------------------------------------


def snapshot_of_world(world: World) -> PlacementSnapshot:
    snapshot = PlacementSnapshot()
    snapshot.take(changes_of_world(world))
    return snapshot


def changes_of_world(world: World, only: Collection[str] | None = None, removed: Sequence[str] = ()) -> SnapshotChanges:
    """`only`: those that have changed."""
    ids = {uuid: number for number, uuid in enumerate(world.providers, 1)}
    told = [provider for uuid, provider in world.providers.items() if only is None or uuid in only]
    providers = [
        {
            "id": ids[provider.uuid],
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": 1,
            "accepting": 1,
            "updated_at": 0.0,
            "root": world.root(provider.uuid),
            "parent": provider.parent,
            "traits": ",".join(provider.traits) or None,
            "aggregates": ",".join(provider.aggregates) or None,
        }
        for provider in told
    ]
    offers = [
        {"provider_id": ids[provider.uuid], "name": name, "capacity": offer.capacity, "used": offer.used}
        | {unit: getattr(offer, unit) for unit in ("min_unit", "max_unit", "step_size")}
        for provider in told
        for name, offer in provider.offers.items()
    ]
    return SnapshotChanges(1, providers, offers, removed)
