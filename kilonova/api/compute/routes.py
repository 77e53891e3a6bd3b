"""All of Compute's routes, in one table."""

from __future__ import annotations

from kilonova.api.compute import (
    availability_zones,
    extensions,
    flavor_access,
    flavor_extra_specs,
    flavors,
    hypervisors,
    instance_actions,
    keypairs,
    limits,
    quotas,
    server_actions,
    server_ips,
    server_metadata,
    server_rebuild,
    server_tags,
    servers,
    services,
    versions,
)
from kilonova.api.routes import Route

MODULES = (
    versions,
    servers,
    server_actions,
    server_ips,
    server_metadata,
    server_rebuild,
    server_tags,
    instance_actions,
    flavors,
    flavor_access,
    flavor_extra_specs,
    keypairs,
    quotas,
    limits,
    services,
    hypervisors,
    availability_zones,
    extensions,
)
ROUTES: list[Route] = [route for module in MODULES for route in module.ROUTES]
LEGACY_ROUTES: list[Route] = [*versions.LEGACY_ROUTES, *(route for route in ROUTES if route not in versions.ROUTES)]
