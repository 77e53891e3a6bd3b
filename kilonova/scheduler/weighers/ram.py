"""Free memory: the most free first, so that load spreads."""

from __future__ import annotations

from kilonova.placement.classes import MEMORY_MB
from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class RAMWeigher(Weigher):
    name = "RAMWeigher"
    option = "ram_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return field.free(MEMORY_MB, hosts)
