"""Conditions on single providers: a boolean per place, for all providers at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kilonova.placement.candidates.query import Names
from kilonova.placement.snapshot import Bits, Bools, Ints, PlacementSnapshot
from kilonova.placement.snapshot_columns import NameColumns


def all_of(columns: NameColumns, required: Iterable[Names], forbidden: Names = frozenset()) -> Bits | None:
    """Return the places with one name of each set and none of the forbidden ones; None: no condition."""
    matches: Bits | None = None
    for names in required:
        bits = columns.any_of(names)
        matches = bits if matches is None else np.bitwise_and(matches, bits, out=matches)
    if forbidden:
        allowed = ~columns.any_of(forbidden)
        matches = allowed if matches is None else np.bitwise_and(matches, allowed, out=matches)
    return matches


def both(one: Bits | None, other: Bits | None) -> Bits | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def narrow(snapshot: PlacementSnapshot, mask: Bools, bits: Bits | None) -> None:
    if bits is not None:
        mask &= snapshot.truths(bits)


def fits(snapshot: PlacementSnapshot, resource_class: str, amount: int) -> Bools:
    columns = snapshot.classes.get(resource_class)
    if columns is None:
        return np.zeros(snapshot.rows, dtype=np.bool_)
    return columns.fits(amount, slice(snapshot.rows))


def fits_all(snapshot: PlacementSnapshot, mask: Bools, resources: Mapping[str, int]) -> None:
    """Keep in `mask` only providers that have capacity for all of the resources."""
    for resource_class, amount in resources.items():
        mask &= fits(snapshot, resource_class, amount)


def with_room(snapshot: PlacementSnapshot, places: Ints, resources: Mapping[str, int]) -> Ints:
    """Return the places that have capacity for all of it."""
    for resource_class, amount in resources.items():
        columns = snapshot.classes.get(resource_class)
        if columns is None or not len(places):
            return places[:0]
        places = places[columns.fits(amount, places)]
    return places


def in_tree(snapshot: PlacementSnapshot, uuid: str) -> Bools:
    at = snapshot.index.get(uuid)
    if at is None:
        return np.zeros(snapshot.rows, dtype=np.bool_)
    in_same_tree: Bools = snapshot.root[: snapshot.rows] == snapshot.root[at]
    return in_same_tree


def roots(snapshot: PlacementSnapshot, required: Names, forbidden: Names) -> Bools | None:
    """Return the places that may be the root of a candidate's tree; None: any. The values at other places have no
    meaning."""
    bits = all_of(snapshot.with_trait, [frozenset([name]) for name in required], forbidden)
    return None if bits is None else snapshot.truths(bits)
