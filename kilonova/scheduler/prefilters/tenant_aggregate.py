"""Tenant aggregate: a project that has aggregates of its own (`filter_tenant_id…`) goes nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

KEY = "filter_tenant_id"  # more than one: followed by anything


class TenantAggregate:
    name = "require_tenant_aggregate"
    option = "limit_tenants_to_placement_aggregate"
    for_rebuild = False

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        own = frozenset(one.uuid for one in aggregates if request.project in _projects(one))
        if own:
            why = f"not in an aggregate of project {request.project}"
            return Demand(name=self.name, member_of=own, why=why, remedy="{host} in an aggregate of the project")
        if settings.scheduler.placement_aggregate_required_for_tenants:
            why = f"project {request.project} has no aggregate, and placement_aggregate_required_for_tenants is set"
            return Demand(name=self.name, member_of=frozenset(), why=why, remedy="an aggregate for the project")
        return None


def _projects(aggregate: Aggregate) -> set[str]:
    return {value for key, value in aggregate.metadata.items() if key.startswith(KEY)}
