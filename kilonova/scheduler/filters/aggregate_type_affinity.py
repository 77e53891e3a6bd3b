"""AggregateTypeAffinityFilter: aggregates that name flavors (`instance_type`) take only servers of those."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

KEY = "instance_type"


class AggregateTypeAffinityFilter(Filter):
    name = "AggregateTypeAffinityFilter"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        name = request.flavor.name
        return judged(field, lambda values: not values.get(KEY) or name in values[KEY])

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        flavors = of_host(field, at).get(KEY)
        if not flavors:
            return "its aggregates take every flavor"
        return f"its aggregates take {', '.join(sorted(flavors))}; the flavor is {request.flavor.name}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"one of the flavors {', '.join(sorted(of_host(field, at).get(KEY, ())))}"
