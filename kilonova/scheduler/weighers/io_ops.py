"""How many servers keep a host's disks busy; by default fewer are better."""

from __future__ import annotations

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class IoOpsWeigher(Weigher):
    name = "IoOpsWeigher"
    option = "io_ops_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return field.hosts.busy[hosts] if field.hosts.busy.any() else None
