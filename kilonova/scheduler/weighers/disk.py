"""Free disk: the most free first, so that load spreads."""

from __future__ import annotations

from kilonova.placement.classes import DISK_GB
from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class DiskWeigher(Weigher):
    name = "DiskWeigher"
    option = "disk_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return field.free(DISK_GB, hosts)
