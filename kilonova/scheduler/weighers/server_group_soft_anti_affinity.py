"""A group that would rather have its servers apart: where fewer of them are is better."""

from __future__ import annotations

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher
from kilonova.scheduler.weighers.group_members import group_members


class ServerGroupSoftAntiAffinityWeigher(Weigher):
    name = "ServerGroupSoftAntiAffinityWeigher"
    option = "soft_anti_affinity_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        there = group_members("soft-anti-affinity", field, request, hosts)
        return None if there is None else -there
