"""The smallest changes that would let a refused request fit; each alone is enough. A pure function of the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kilonova.scheduler.matrix import Matrix
from kilonova.scheduler.offers import NAME as CAPACITY
from kilonova.scheduler.offers import Offers
from kilonova.scheduler.request import ResourceRequest

MOST = 3  # changes that are named
LOOKED_AT = 50  # hosts, nearest first
PARTS = (("VCPU", "vcpus", "VCPU"), ("MEMORY_MB", "memory_mb", "MB"), ("DISK_GB", "disk_gb", "GB"))


def smallest_changes(matrix: Matrix, offers: Offers, largest: str) -> tuple[str, ...]:
    """Name a few: hosts that one stage alone rejects first; one that several reject needs all of their remedies."""
    near = matrix.nearest(offers, LOOKED_AT)
    if not near:
        return ("a host",) if not matrix.field.considered else ()
    remedies = dict.fromkeys(filter(None, (remedy_for(matrix, at) for at in near)))
    if largest:
        remedies = dict.fromkeys([*list(remedies)[:1], largest, *list(remedies)[1:]])
    return tuple(list(remedies)[:MOST])


def remedy_for(matrix: Matrix, at: int) -> str | None:
    """Return the changes that would let this host fit; None if there are none now."""
    remedies = [stage.remedy(at) for stage in matrix.rejections(at)]
    return None if None in remedies else _joined(dict.fromkeys(str(remedy) for remedy in remedies))


def _joined(remedies: Iterable[str]) -> str:
    return ", and ".join(remedies)


def largest_flavor(matrix: Matrix, offers: Offers, request: ResourceRequest) -> str:
    """Return the largest flavor that would fit where only capacity is missing, by the one host that lacks the least."""
    only_room = [
        at
        for at in matrix.nearest(offers, LOOKED_AT)
        if [stage.name for stage in matrix.rejections(at)] == [CAPACITY]
        and offers.lacking(at)
        and not any(offers.wrong_traits(at))
    ]
    return _at_most(offers, only_room[0], request) if only_room else ""


def _at_most(offers: Offers, at: int, request: ResourceRequest) -> str:
    lacking = offers.lacking(at)
    parts: Sequence[str] = [
        f"{getattr(request.flavor, field) - lacking[name]} {unit}" for name, field, unit in PARTS if name in lacking
    ]
    whole = all(
        getattr(request.flavor, field) > lacking[name] for name, field, _ in PARTS if name in lacking
    ) and lacking.keys() <= {name for name, _, _ in PARTS}
    return f"a flavor with at most {' and '.join(parts)}" if whole and np.all(parts) else ""
