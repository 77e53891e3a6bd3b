"""A group that would rather have its servers together: where more of them are is better."""

from __future__ import annotations

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher
from kilonova.scheduler.weighers.group_members import group_members


class ServerGroupSoftAffinityWeigher(Weigher):
    name = "ServerGroupSoftAffinityWeigher"
    option = "soft_affinity_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return group_members("soft-affinity", field, request, hosts)
