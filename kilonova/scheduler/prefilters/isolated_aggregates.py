"""Isolated aggregates: one that requires traits (`trait:NAME=required`) takes only servers that ask for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

PREFIX = "trait:"


class IsolatedAggregates:
    name = "isolate_aggregates"
    option = "enable_isolated_aggregate_filtering"
    for_rebuild = True

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        asked = {trait for group in request.needs().groups for names in group.required for trait in names}
        closed = [one for one in aggregates if _required(one) - asked]
        if not closed:
            return None
        named = ", ".join(one.name for one in closed)
        why = f"in an aggregate that requires traits not asked for ({named})"
        remedy = "a flavor that asks for all traits of the aggregates of {host}"
        return Demand(name=self.name, outside=frozenset(one.uuid for one in closed), why=why, remedy=remedy)


def _required(aggregate: Aggregate) -> set[str]:
    return {key[len(PREFIX) :] for key, value in aggregate.metadata.items() if key.startswith(PREFIX) and value}
