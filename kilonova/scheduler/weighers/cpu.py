"""Free processors: the most free first, so that load spreads."""

from __future__ import annotations

from kilonova.placement.classes import VCPU
from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class CPUWeigher(Weigher):
    name = "CPUWeigher"
    option = "cpu_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return field.free(VCPU, hosts)
