"""The route table of Placement: one module per topic."""

from __future__ import annotations

from kilonova.api.placement import (
    aggregates,
    allocations,
    candidates,
    classes,
    inventories,
    provider_list,
    providers,
    reshaper,
    traits,
    usages,
    versions,
)

ROUTES = [
    *versions.ROUTES,
    *provider_list.ROUTES,
    *providers.ROUTES,
    *inventories.ROUTES,
    *aggregates.ROUTES,
    *traits.ROUTES,
    *usages.ROUTES,
    *candidates.ROUTES,
    *allocations.ROUTES,
    *classes.ROUTES,
    *reshaper.ROUTES,
]
