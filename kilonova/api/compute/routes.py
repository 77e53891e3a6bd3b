"""The route table of Compute."""

from __future__ import annotations

from dataclasses import replace

from kilonova.api.compute import (
    aggregates,
    availability_zones,
    extensions,
    flavor_access,
    flavor_extra_specs,
    flavors,
    hypervisors,
    images,
    instance_actions,
    keypairs,
    limits,
    migrations,
    quotas,
    server_actions,
    server_consoles,
    server_evacuate,
    server_groups,
    server_hardware,
    server_image,
    server_interfaces,
    server_ips,
    server_metadata,
    server_migrate,
    server_migrations,
    server_rebuild,
    server_resize,
    server_tags,
    server_volumes,
    servers,
    services,
    versions,
    volumes,
)
from kilonova.api.compute.repeating import repeatable
from kilonova.api.compute.schemas.queries import NONE
from kilonova.api.routes import Route

MODULES = (
    versions,
    servers,
    server_actions,
    server_consoles,
    server_evacuate,
    server_hardware,
    server_image,
    server_interfaces,
    server_ips,
    server_metadata,
    server_migrate,
    server_migrations,
    server_rebuild,
    server_resize,
    server_tags,
    server_volumes,
    instance_actions,
    migrations,
    flavors,
    flavor_access,
    flavor_extra_specs,
    keypairs,
    server_groups,
    quotas,
    limits,
    services,
    hypervisors,
    availability_zones,
    aggregates,
    volumes,
    images,
    extensions,
)


def _closed(route: Route) -> Route:
    """Refuse unknown query parameters (from 2.102 on), also on routes that have no parameters."""
    return route if route.query is not None else replace(route, query=NONE)


def _repeatable(route: Route) -> Route:
    return route if route.method == "GET" else replace(route, handler=repeatable(route.handler))


ROUTES: list[Route] = [_repeatable(_closed(route)) for module in MODULES for route in module.ROUTES]
LEGACY_ROUTES: list[Route] = [*versions.LEGACY_ROUTES, *(route for route in ROUTES if route not in versions.ROUTES)]
