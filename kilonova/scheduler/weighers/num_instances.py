"""How many servers a host has; by default it does not count."""

from __future__ import annotations

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher


class NumInstancesWeigher(Weigher):
    name = "NumInstancesWeigher"
    option = "num_instances_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        return field.hosts.servers[hosts] if field.hosts.servers.any() else None
