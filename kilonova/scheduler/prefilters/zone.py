"""Zone: a request that names an availability zone goes to its aggregates. The default zone is in no aggregate and adds
nothing, as in Nova."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings


class Zone:
    name = "map_az_to_placement_aggregate"
    option = ""
    for_rebuild = False

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        inside = frozenset(one.uuid for one in aggregates if request.zone and one.zone == request.zone)
        why = f"not in availability zone {request.zone}"
        remedy = f"{{host}} in availability zone {request.zone}, or a request without it"
        return Demand(name=self.name, member_of=inside, why=why, remedy=remedy) if inside else None
