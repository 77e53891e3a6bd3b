"""Builds that failed on a host since the last one that worked: fewer are better, by far."""

from __future__ import annotations

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class BuildFailureWeigher(Weigher):
    name = "BuildFailureWeigher"
    option = "build_failure_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return -field.hosts.failed[hosts] if field.hosts.failed.any() else None
