"""Seats: the resources that one provider has to give. A group with a suffix is one seat, one without is a seat per
class.

The takers of a seat are pairs of a provider and the root of the tree that it would serve: its own tree, and for a
sharing provider also each tree that it reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kilonova.placement.candidates.conditions import all_of, both, fits, fits_all, in_tree, narrow
from kilonova.placement.candidates.query import Group
from kilonova.placement.snapshot import Bools, PlacementSnapshot, Places


@dataclass(slots=True)
class Seat:
    group: Group
    resources: Mapping[str, int]
    anchors: Places  # sorted
    places: Places

    def takers(self, anchors: Places) -> Iterable[list[int]]:
        """Return, for each of these anchors, the providers that could take the seat."""
        first = np.searchsorted(self.anchors, anchors, "left").tolist()
        last = np.searchsorted(self.anchors, anchors, "right").tolist()
        return (self.places[a:b].tolist() for a, b in zip(first, last, strict=True))


def seats_of(
    snapshot: PlacementSnapshot, group: Group, roots: Bools | None, handled: Bools | None = None
) -> list[Seat]:
    """`roots`: the only trees that count. `handled`: places that another search covers."""
    if group.suffix:
        return [_one_seat(snapshot, group, roots)]
    return _seat_per_class(snapshot, group, roots, handled)


def _one_seat(snapshot: PlacementSnapshot, group: Group, roots: Bools | None) -> Seat:
    """Return the seat of a group, exactly as in the original: without resources only a required trait or aggregate
    makes a provider eligible, and the tree then makes no difference as long as there is one."""
    mask = snapshot.alive[: snapshot.rows].copy()
    narrow(
        snapshot,
        mask,
        both(
            all_of(snapshot.with_trait, group.required, group.forbidden),
            all_of(snapshot.in_aggregate, group.member_of, group.outside),
        ),
    )
    fits_all(snapshot, mask, group.resources)
    if group.in_tree:
        tree = in_tree(snapshot, group.in_tree)
        mask &= tree if group.resources else tree.any()
    if not (group.resources or group.required or group.member_of):
        mask[:] = False
    anchors, places = _pairs(snapshot, mask, mask)
    return _seat(group, group.resources, anchors, places, roots)


def _seat_per_class(
    snapshot: PlacementSnapshot, group: Group, roots: Bools | None, handled: Bools | None
) -> list[Seat]:
    """Return a seat per class. An aggregate of the root counts for the whole tree, but not for sharing providers of
    another one."""
    usable = snapshot.alive[: snapshot.rows].copy()
    narrow(snapshot, usable, all_of(snapshot.with_trait, (), group.forbidden))
    if group.in_tree:
        usable &= in_tree(snapshot, group.in_tree)
    inside, outside = _membership(snapshot, group)
    seats = []
    for resource_class, amount in group.resources.items():
        mask = usable & fits(snapshot, resource_class, amount)
        shared = np.zeros_like(mask) if group.in_tree else mask if inside is None else mask & inside
        anchors, places = _pairs(snapshot, mask if handled is None else mask & ~handled, shared)
        keep: Bools = np.ones(len(places), dtype=np.bool_)
        if inside is not None:
            keep &= inside[places] | inside[anchors]
        if outside is not None:
            keep &= ~(outside[places] | outside[anchors])
        seats.append(_seat(group, {resource_class: amount}, anchors[keep], places[keep], roots))
    return seats


def _membership(snapshot: PlacementSnapshot, group: Group) -> tuple[Bools | None, Bools | None]:
    """Return who is in all the requested aggregates, and who is in a forbidden one. None: no condition."""
    bits = all_of(snapshot.in_aggregate, group.member_of)
    inside = None if bits is None else snapshot.truths(bits)
    outside = snapshot.truths(snapshot.in_aggregate.any_of(group.outside)) if group.outside else None
    return inside, outside


def _pairs(snapshot: PlacementSnapshot, own: Bools, shared: Bools) -> tuple[Places, Places]:
    """Anchors and places: `own` in their own trees, and those of `shared` that share in every other that they reach."""
    places = np.flatnonzero(own).astype(np.int32)
    anchors = snapshot.root[places]
    for at in snapshot.trees.sharing:
        if shared[at]:
            reached = snapshot.trees.reached(at)
            reached = reached[reached != snapshot.root[at]]
            anchors = np.concatenate([anchors, reached])
            places = np.concatenate([places, np.full(len(reached), at, dtype=np.int32)])
    return anchors, places


def _seat(group: Group, resources: Mapping[str, int], anchors: Places, places: Places, roots: Bools | None) -> Seat:
    if roots is not None:
        allowed = roots[anchors]
        anchors, places = anchors[allowed], places[allowed]
    order = np.argsort(anchors, kind="stable")
    return Seat(group, resources, anchors[order], places[order])


def viable(snapshot: PlacementSnapshot, seats: list[Seat]) -> Places:
    """Return the anchors that have a provider for each seat, and for each trait that their group must have together."""
    anchors: Bools = np.ones(snapshot.rows, dtype=np.bool_)
    for seat in seats:
        anchors &= _truths(snapshot, seat.anchors)
    for group in {id(seat.group): seat.group for seat in seats}.values():
        own = [seat for seat in seats if seat.group is group]
        for traits in () if group.suffix else group.required:
            with_one = snapshot.truths(snapshot.with_trait.any_of(traits))
            anchors &= _truths(snapshot, np.concatenate([seat.anchors[with_one[seat.places]] for seat in own]))
    return np.flatnonzero(anchors).astype(np.int32)


def _truths(snapshot: PlacementSnapshot, places: Places) -> Bools:
    truths: Bools = np.zeros(snapshot.rows, dtype=np.bool_)
    truths[places] = True
    return truths
