"""Select a host: a pure function over a snapshot. It may propose and never refuses: "no valid host" is the caller's
to conclude, from a snapshot synced after the request began."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import numpy as np

from kilonova.placement.snapshot import Bools, Ints, Snapshot
from kilonova.scheduler.filters import FILTERS
from kilonova.scheduler.filters.capacity import shortage
from kilonova.scheduler.hosts import Field, HostView
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.verdict import Choice, Decision, FilterCount, Verdict
from kilonova.scheduler.weighers import WEIGHERS, Floats, normalised

__all__ = ["HostView", "select"]

NEAREST = 50
WHOLE_MATRIX = 1000


def select(
    snapshot: Snapshot,
    hosts: Mapping[str, HostView],
    request: ResourceRequest,
    random: random.Random,
    *,
    subset: int = 1,
    alternates: int = 2,
) -> Decision:
    """One of the best `subset` hosts at random, and the next best to try when its claim is refused."""
    field = Field(snapshot, hosts)
    masks = [filter_.passes(field, request) for filter_ in FILTERS]
    fits: Bools = np.logical_and.reduce(masks)
    fitting: Ints = np.flatnonzero(fits)
    weights = _weights(field, request, fitting)
    taken = _take(weights, random, subset, alternates)
    choices = [_choice(field, int(fitting[place]), float(weights[place])) for place in taken]
    whole = not choices and len(field) <= WHOLE_MATRIX
    told = [int(fitting[place]) for place in taken] + _nearest(field, request, masks, fits, None if whole else NEAREST)
    return Decision(
        request=request,
        considered=len(field),
        fitting=len(fitting),
        counts=tuple(_counts(field, masks)),
        chosen=choices[0] if choices else None,
        alternates=tuple(choices[1:]),
        verdicts=tuple(_verdicts(field, request, masks, told)),
        complete=len(told) == len(field),
    )


def _weights(field: Field, request: ResourceRequest, fitting: Ints) -> Floats:
    """Normalised among the hosts that fit: what a full host would weigh says nothing about the others."""
    total: Floats = np.zeros(len(fitting))
    for weigher in WEIGHERS:
        total += weigher.multiplier * normalised(weigher.values(field, request)[fitting])
    return total


def _take(weights: Floats, random: random.Random, subset: int, alternates: int) -> list[int]:
    """Places of the chosen and its alternates, best first after the chosen; equals in the order of their names."""
    order = [int(place) for place in np.argsort(-weights, kind="stable")[: max(subset, 1) + alternates]]
    if not order:
        return []
    chosen = random.randrange(min(max(subset, 1), len(order)))
    return [order[chosen], *(order[:chosen] + order[chosen + 1 :])[:alternates]]


def _choice(field: Field, at: int, weight: float) -> Choice:
    return Choice(field.names[at], field.views[at].provider, round(weight, 6))


def _counts(field: Field, masks: list[Bools]) -> Iterable[FilterCount]:
    for filter_, mask in zip(FILTERS, masks, strict=True):
        passed = int(np.count_nonzero(mask))
        yield FilterCount(filter_.name, passed, len(field) - passed)


def _nearest(field: Field, request: ResourceRequest, masks: list[Bools], fits: Bools, limit: int | None) -> list[int]:
    """Hosts that do not fit, nearest first: rejected by the fewest filters, then lacking the least."""
    rejected = np.flatnonzero(~fits)
    if not len(rejected):
        return []
    failures = np.sum([~mask[rejected] for mask in masks], axis=0)
    order = np.lexsort((shortage(field, request)[rejected], failures))
    return [int(at) for at in rejected[order[:limit]]]


def _verdicts(field: Field, request: ResourceRequest, masks: list[Bools], told: list[int]) -> Iterable[Verdict]:
    for at in told:
        for filter_, mask in zip(FILTERS, masks, strict=True):
            yield Verdict(field.names[at], filter_.name, bool(mask[at]), filter_.sentence(field, request, at))
