"""For a refusal: the smallest changes that would let it fit, each enough by itself. A pure function of the matrix."""

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


def smallest_changes(matrix: Matrix, offers: Offers, request: ResourceRequest) -> tuple[str, ...]:
    """Hosts that one stage alone rejects come first; one that several reject needs all of their remedies."""
    near = matrix.nearest(offers, LOOKED_AT)
    if not near:
        return ("a host",) if not matrix.field.considered else ()
    found = dict.fromkeys(filter(None, (_remedy(matrix, at) for at in near)))
    smaller = _smaller_flavor(matrix, offers, request)
    if smaller is not None:
        found = dict.fromkeys([*list(found)[:1], smaller, *list(found)[1:]])
    return tuple(list(found)[:MOST])


def _remedy(matrix: Matrix, at: int) -> str | None:
    remedies = [stage.remedy(at) for stage in matrix.rejections(at)]
    return None if None in remedies else _joined(dict.fromkeys(str(remedy) for remedy in remedies))


def _joined(remedies: Iterable[str]) -> str:
    return ", and ".join(remedies)


def _smaller_flavor(matrix: Matrix, offers: Offers, request: ResourceRequest) -> str | None:
    """The largest that would fit where only room is missing, by the one host that lacks the least."""
    only_room = [
        at
        for at in matrix.nearest(offers, LOOKED_AT)
        if [stage.name for stage in matrix.rejections(at)] == [CAPACITY]
        and offers.lacking(at)
        and not any(offers.wrong_traits(at))
    ]
    if not only_room:
        return None
    return _at_most(offers, only_room[0], request)


def _at_most(offers: Offers, at: int, request: ResourceRequest) -> str | None:
    lacking = offers.lacking(at)
    parts: Sequence[str] = [
        f"{getattr(request.flavor, field) - lacking[name]} {unit}" for name, field, unit in PARTS if name in lacking
    ]
    whole = all(
        getattr(request.flavor, field) > lacking[name] for name, field, _ in PARTS if name in lacking
    ) and lacking.keys() <= {name for name, _, _ in PARTS}
    return f"a flavor with at most {' and '.join(parts)}" if whole and np.all(parts) else None
