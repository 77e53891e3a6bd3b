"""Compute status: a host that an administrator has disabled takes no new servers, not even when it is forced."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.placement.traits import DISABLED
from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

NAME = "compute_status_filter"
DEMAND = Demand(
    name=NAME, forbidden=frozenset([DISABLED]), why="it is disabled", remedy="enable {host}", about_state=True
)


class ComputeStatus:
    name = NAME
    option = ""
    for_rebuild = False

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        return DEMAND
