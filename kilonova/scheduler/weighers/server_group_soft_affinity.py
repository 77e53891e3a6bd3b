"""A group that would rather have its servers together: where more of them are is better."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher

POLICY = "soft-affinity"


class ServerGroupSoftAffinityWeigher(Weigher):
    name = "ServerGroupSoftAffinityWeigher"
    option = "soft_affinity_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        if request.group is None or request.group.policy != POLICY or not field.around.members:
            return None
        there = [field.around.others(field.provider(at), request.server) for at in hosts.tolist()]
        return np.array(there, dtype=np.int64)
