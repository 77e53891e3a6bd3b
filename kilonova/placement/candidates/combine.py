"""The combinations of providers that fill the seats of a query in one tree. Dead ends are left as early as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kilonova.placement.candidates.query import CandidateQuery, Group
from kilonova.placement.candidates.seats import Seat
from kilonova.placement.snapshot import PlacementSnapshot

Given = dict[tuple[int, str], int]  # by place and class
Check = Callable[[Sequence[int]], bool]  # of the providers in the first seats


class Candidate(NamedTuple):
    allocations: dict[int, dict[str, int]]  # by place
    mappings: dict[str, tuple[int, ...]]  # by suffix: the places that serve that group

    @property
    def key(self) -> object:
        """Return a key that is equal for indistinguishable candidates."""
        amounts = frozenset((at, *pair) for at, given in self.allocations.items() for pair in given.items())
        return amounts, tuple(self.mappings.items())


class Combiner:
    def __init__(self, snapshot: PlacementSnapshot, query: CandidateQuery, seats: list[Seat]) -> None:
        self._snapshot = snapshot
        self._seats = seats
        self._checks: list[list[Check]] = [[] for _ in seats]  # to be run once that seat is taken
        for group in query.groups:
            if group.required and not group.suffix:
                self._when_taken([group.suffix], _traits_together(snapshot, group, self._seats_of([group.suffix])))
        self._apart: list[int] = []  # seats that must go to different providers
        self._contested: dict[str, list[int]] = {}  # classes that several seats ask for
        self._find_contested()
        if query.isolate:
            self._isolate()
        for suffixes in query.same_subtrees:
            self._when_taken(suffixes, _same_subtree(snapshot, self._seats_of(suffixes)))

    def _seats_of(self, suffixes: Sequence[str] | frozenset[str]) -> list[int]:
        return [number for number, seat in enumerate(self._seats) if seat.group.suffix in suffixes]

    def _when_taken(self, suffixes: Sequence[str] | frozenset[str], check: Check) -> None:
        self._checks[max(self._seats_of(suffixes))].append(check)

    def _isolate(self) -> None:
        self._apart = [number for number, seat in enumerate(self._seats) if seat.group.suffix]
        for order, number in enumerate(self._apart):
            self._checks[number].append(_differs_from(number, self._apart[:order]))

    def _find_contested(self) -> None:
        by_class: dict[str, list[int]] = {}
        for number, seat in enumerate(self._seats):
            for name in seat.resources:
                by_class.setdefault(name, []).append(number)
        self._contested = {name: numbers for name, numbers in by_class.items() if len(numbers) > 1}

    def candidates(self, takers: Sequence[list[int]]) -> Iterator[Candidate]:
        """Yield the candidates of a tree. `takers`: for each seat, the providers that could take it.

        Seats are filled in turn; if no provider is left for a seat, the seat before it gets its next provider.
        """
        if not self._has_enough(takers):
            return
        taken: list[int] = []
        given: list[Given] = [{}]
        waiting = [iter(takers[0])]
        while waiting:
            at = next(waiting[-1], None)
            if at is None:
                waiting.pop()
                given.pop()
                del taken[-1:]
                continue
            number = len(taken)
            after = self._give(at, self._seats[number], given[-1])
            if after is None:
                continue
            taken.append(at)
            if not all(check(taken) for check in self._checks[number]):
                taken.pop()
            elif len(taken) == len(takers):
                yield self._candidate(taken)
                taken.pop()
            else:
                given.append(after)
                waiting.append(iter(takers[len(taken)]))

    def _has_enough(self, takers: Sequence[list[int]]) -> bool:
        """Return False if the seats cannot fit together: ten seats and nine devices would otherwise be tried in every
        order."""
        for resource_class, seats in self._contested.items():
            places = list(set().union(*(takers[number] for number in seats)))
            capacity, used = self._snapshot.classes[resource_class].table[:2, places]
            wanted = sum(self._seats[number].resources[resource_class] for number in seats)
            if int((capacity - used).sum()) < wanted:
                return False
        return len(set().union(*(takers[number] for number in self._apart))) >= len(self._apart)

    def _give(self, at: int, seat: Seat, given: Given) -> Given | None:
        """Add the seat's resources to those given; None if that is too much. Each seat fits alone, together they may
        not."""
        after = given
        for resource_class, amount in seat.resources.items():
            slot = (at, resource_class)
            before = given.get(slot, 0)
            if before and not self._has_room(at, resource_class, before + amount):
                return None
            after = {**after, slot: before + amount}
        return after

    def _has_room(self, at: int, resource_class: str, amount: int) -> bool:
        """Return whether the amount fits, as in the original: a sum need not be a multiple of the step."""
        capacity, used, _, max_unit, _ = self._snapshot.classes[resource_class].table[:, at].tolist()
        return bool(used + amount <= capacity and amount <= max_unit)

    def _candidate(self, taken: Sequence[int]) -> Candidate:
        allocations: dict[int, dict[str, int]] = {}
        served: dict[str, set[int]] = {}
        for at, seat in zip(taken, self._seats, strict=True):
            served.setdefault(seat.group.suffix, set()).add(at)
            for resource_class, amount in seat.resources.items():
                amounts = allocations.setdefault(at, {})
                amounts[resource_class] = amounts.get(resource_class, 0) + amount
        return Candidate(allocations, {suffix: tuple(sorted(places)) for suffix, places in served.items()})


def _traits_together(snapshot: PlacementSnapshot, group: Group, seats: list[int]) -> Check:
    traits = snapshot.traits

    def check(taken: Sequence[int]) -> bool:
        return all(any(not names.isdisjoint(traits[taken[seat]]) for seat in seats) for names in group.required)

    return check


def _differs_from(number: int, others: list[int]) -> Check:
    return lambda taken: all(taken[number] != taken[other] for other in others)


def _same_subtree(snapshot: PlacementSnapshot, seats: list[int]) -> Check:
    """Return the check that one of the providers is above all the others."""

    def check(taken: Sequence[int]) -> bool:
        places = {taken[seat] for seat in seats}
        lines = [_line(snapshot, at) for at in places]
        return any(all(at in line for line in lines) for at in places)

    return check


def _line(snapshot: PlacementSnapshot, at: int) -> set[int]:
    """A provider and all above it."""
    line: set[int] = set()
    while at >= 0:
        line.add(at)
        at = int(snapshot.parent[at])
    return line
