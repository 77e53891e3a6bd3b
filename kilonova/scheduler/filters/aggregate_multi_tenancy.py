"""AggregateMultiTenancyIsolation: aggregates that name projects (`filter_tenant_id…`) take only servers of those."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.aggregate_metadata import Values, judged, of_host
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

KEY = "filter_tenant_id"


class AggregateMultiTenancyIsolation(Filter):
    name = "AggregateMultiTenancyIsolation"
    needs_cell = False

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        def takes(values: Values) -> bool:
            projects = _projects(values)
            return not projects or request.project in projects

        return judged(field, takes)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        projects = _projects(of_host(field, at))
        if not projects:
            return "its aggregates take every project"
        among = "among them" if request.project in projects else "not among them"
        return f"its aggregates take {len(projects)} projects; {request.project} is {among}"


def _projects(values: Values) -> set[str]:
    return {project for key, found in values.items() if key.startswith(KEY) for project in found}
