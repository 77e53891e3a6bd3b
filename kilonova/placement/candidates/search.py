"""The search: providers without a tree are judged all at once; trees are narrowed to those that can match, then
combined one by one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kilonova.placement.candidates import conditions
from kilonova.placement.candidates.combine import Candidate, Combiner
from kilonova.placement.candidates.query import CandidateQuery, Group, Options
from kilonova.placement.candidates.seats import Seat, seats_of, viable
from kilonova.placement.snapshot import Bools, Ints, PlacementSnapshot

T = TypeVar("T")
FIRST_BLOCK = 256  # places; most queries want a few candidates, and find them there
BLOCK = 8192  # places searched at once, so that they stay in the processor's cache


class Alone(Sequence[Candidate]):
    """Candidates of one provider each, created when read: a thousand of them cost no more than a list of places."""

    def __init__(self, group: Group, places: list[int]) -> None:
        self.suffix = group.suffix
        self.resources = dict(group.resources)
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self._candidate(at) for at in self.places[number]]
        return self._candidate(self.places[number])

    def _candidate(self, at: int) -> Candidate:
        return Candidate({at: self.resources}, {self.suffix: (at,)})


class SearchResult(NamedTuple):
    candidates: Sequence[Candidate]
    summaries: list[int]  # places of the providers that a summary is given of


def find(snapshot: PlacementSnapshot, query: CandidateQuery, options: Options, chance: random.Random) -> SearchResult:
    """Find the candidates, in the order of the providers in the snapshot unless the options say otherwise."""
    roots = conditions.roots(snapshot, query.root_required, query.root_forbidden)
    handled: Bools | None = None
    alone: Iterable[int] = ()
    if len(query.groups) == 1 and not query.groups[0].suffix:
        handled = _standing_alone(snapshot, query.groups[0])
        alone = _fitting_alone(snapshot, query.groups[0], roots, handled)
        if int(np.count_nonzero(handled)) == len(snapshot):
            places = _limited(_bounded(alone, options), query.limit, options, chance)
            return SearchResult(Alone(query.groups[0], places), places)
    seats = list(chain.from_iterable(seats_of(snapshot, group, roots, handled) for group in query.groups))
    distinct = _distinct(_tree_by_tree(snapshot, query, seats, alone, round_robin=options.round_robin))
    if snapshot.trees.nested and not query.nested:
        return _without_trees(snapshot, query, list(_bounded(distinct, options)), options, chance)
    candidates = _limited(_bounded(distinct, options), query.limit, options, chance)
    return SearchResult(candidates, _whole_trees(snapshot, candidates))


def standing_alone(snapshot: PlacementSnapshot, query: CandidateQuery) -> Bools:
    """Return the providers for which their own numbers alone decide, so that all are judged at once."""
    if len(query.groups) == 1 and not query.groups[0].suffix:
        return _standing_alone(snapshot, query.groups[0])
    return np.zeros(snapshot.rows, dtype=np.bool_)


def in_trees(
    snapshot: PlacementSnapshot, query: CandidateQuery, among: Bools, handled: Bools
) -> Iterator[tuple[int, Iterator[Candidate]]]:
    """Candidates by the root of their tree, for the roots `among` that are not `handled`; searched lazily."""
    roots = conditions.roots(snapshot, query.root_required, query.root_forbidden)
    roots = among if roots is None else roots & among
    alone = handled if len(query.groups) == 1 and not query.groups[0].suffix else None
    seats = list(chain.from_iterable(seats_of(snapshot, group, roots, alone) for group in query.groups))
    if not seats:
        return
    anchors, combiner = viable(snapshot, seats), Combiner(snapshot, query, seats)
    for at, *takers in zip(anchors.tolist(), *(seat.takers(anchors) for seat in seats), strict=True):
        yield at, combiner.candidates(takers)


def matching(snapshot: PlacementSnapshot, group: Group, uuid: str | None = None) -> list[int]:
    """Return the places of the providers that fulfil the whole group alone."""
    mask = snapshot.alive[: snapshot.rows].copy()
    if uuid is not None:
        mask[:] = False
        if uuid in snapshot.index:
            mask[snapshot.index[uuid]] = True
    return list(_fitting_alone(snapshot, group, None, mask))


def _without_trees(
    snapshot: PlacementSnapshot,
    query: CandidateQuery,
    everything: list[Candidate],
    options: Options,
    chance: random.Random,
) -> SearchResult:
    """Return, for clients without trees, only candidates with one provider of each tree, and summaries of these.
    As in the original, a limit keeps the summaries of all candidates in the trees that remain."""
    root = snapshot.root
    single = [
        candidate
        for candidate in everything
        if len({int(root[at]) for at in candidate.allocations}) == len(candidate.allocations)
    ]
    candidates = _limited(single, query.limit, options, chance)
    roots = {int(root[at]) for candidate in candidates for at in candidate.allocations}
    places = sorted({at for candidate in single for at in candidate.allocations})
    return SearchResult(candidates, [at for at in places if int(root[at]) in roots])


def _bounded(candidates: Iterable[T], options: Options) -> Iterator[T]:
    most = options.max_allocation_candidates
    return islice(candidates, most if most > 0 else None)


def _limited(candidates: Iterable[T], limit: int | None, options: Options, chance: random.Random) -> list[T]:
    if not options.randomize_allocation_candidates:
        return list(islice(candidates, limit))
    everything = list(candidates)
    return chance.sample(everything, len(everything) if limit is None else min(limit, len(everything)))


def _standing_alone(snapshot: PlacementSnapshot, group: Group) -> Bools:
    """Return the providers that are a tree alone, and that no provider shares any requested class with."""
    alone = snapshot.trees.single.copy()
    for at in snapshot.trees.sharing:
        if any(name in snapshot.classes and snapshot.classes[name].has(at) for name in group.resources):
            alone[snapshot.trees.reached(at)] = False
    return alone


def _fitting_alone(snapshot: PlacementSnapshot, group: Group, roots: Bools | None, handled: Bools) -> Iterator[int]:
    """Yield places, block by block: a caller that needs a few does not pay for the rest."""
    mask = handled.copy() if roots is None else handled & roots
    traits = conditions.all_of(snapshot.with_trait, group.required, group.forbidden)
    aggregates = conditions.all_of(snapshot.in_aggregate, group.member_of, group.outside)
    conditions.narrow(snapshot, mask, conditions.both(traits, aggregates))
    if group.in_tree:
        mask &= conditions.in_tree(snapshot, group.in_tree)
    first, size = 0, FIRST_BLOCK
    while first < len(mask):
        places: Ints = np.flatnonzero(mask[first : first + size]) + first
        yield from conditions.with_room(snapshot, places, group.resources).tolist()
        first, size = first + size, min(2 * size, BLOCK)


def _tree_by_tree(
    snapshot: PlacementSnapshot, query: CandidateQuery, seats: list[Seat], alone: Iterable[int], *, round_robin: bool
) -> Iterator[Candidate]:
    anchors = viable(snapshot, seats)
    combiner = Combiner(snapshot, query, seats)
    in_trees = zip(anchors.tolist(), zip(*(seat.takers(anchors) for seat in seats), strict=True), strict=True)
    each = _merged(
        ((at, iter(Alone(query.groups[0], [at]))) for at in alone),
        ((at, combiner.candidates(takers)) for at, takers in in_trees),
    )
    return _by_turns(list(each)) if round_robin else chain.from_iterable(each)


def _merged(
    one: Iterable[tuple[int, Iterator[Candidate]]], other: Iterable[tuple[int, Iterator[Candidate]]]
) -> Iterator[Iterator[Candidate]]:
    """Merge two series, ordered by place."""
    nothing: tuple[int, Iterator[Candidate]] = (-1, iter(()))
    left, right = iter(one), iter(other)
    a, b = next(left, nothing), next(right, nothing)
    while a is not nothing or b is not nothing:
        if b is nothing or (a is not nothing and a[0] < b[0]):
            yield a[1]
            a = next(left, nothing)
        else:
            yield b[1]
            b = next(right, nothing)


def _by_turns(each: Sequence[Iterator[T]]) -> Iterator[T]:
    """Yield one of each, then the next of each, until all are empty."""
    waiting = list(each)
    while waiting:
        left = []
        for one in waiting:
            for item in islice(one, 1):
                yield item
                left.append(one)
        waiting = left


def _distinct(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Drop repeated candidates: a sharing provider alone may be a candidate in each tree that it reaches."""
    seen = set()
    for candidate in candidates:
        key = candidate.key
        if key not in seen:
            seen.add(key)
            yield candidate


def _whole_trees(snapshot: PlacementSnapshot, candidates: Sequence[Candidate]) -> list[int]:
    """Return the places of all providers in the trees of the candidates."""
    used = list(dict.fromkeys(at for candidate in candidates for at in candidate.allocations))
    if not used or bool(snapshot.trees.single[used].all()):
        return used
    truths: Bools = np.zeros(snapshot.rows, dtype=np.bool_)
    truths[snapshot.root[used]] = True
    truths = truths[snapshot.root[: snapshot.rows]] & snapshot.alive[: snapshot.rows]
    positions: list[int] = np.flatnonzero(truths).tolist()
    return positions
