"""Demand or forbid aggregates: those of the project, those of the zone, those that isolate their hosts."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

PROJECTS = "filter_tenant_id"  # a prefix: further projects have keys with a suffix
TRAIT = "trait:"


class TenantAggregate:
    """Send a project that has its own aggregates (`filter_tenant_id…`) to those alone."""

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
    return {value for key, value in aggregate.metadata.items() if key.startswith(PROJECTS)}


class Zone:
    """Send a request that names an availability zone to its aggregates. As in Nova, the default zone has no aggregate
    and demands nothing."""

    name = "map_az_to_placement_aggregate"
    option = ""
    for_rebuild = False

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        inside = frozenset(one.uuid for one in aggregates if request.zone and one.zone == request.zone)
        why = f"not in availability zone {request.zone}"
        remedy = f"{{host}} in availability zone {request.zone}, or a request without it"
        return Demand(name=self.name, member_of=inside, why=why, remedy=remedy) if inside else None


class IsolatedAggregates:
    """Close an aggregate that requires traits (`trait:NAME=required`) to requests that do not require all of them."""

    name = "isolate_aggregates"
    option = "enable_isolated_aggregate_filtering"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        requested = {trait for group in request.needs().groups for names in group.required for trait in names}
        closed = [one for one in aggregates if _required(one) - requested]
        if not closed:
            return None
        named = ", ".join(one.name for one in closed)
        why = f"in an aggregate that requires traits not asked for ({named})"
        remedy = "a flavor that asks for all traits of the aggregates of {host}"
        return Demand(name=self.name, outside=frozenset(one.uuid for one in closed), why=why, remedy=remedy)


def _required(aggregate: Aggregate) -> set[str]:
    return {key[len(TRAIT) :] for key, value in aggregate.metadata.items() if key.startswith(TRAIT) and value}
