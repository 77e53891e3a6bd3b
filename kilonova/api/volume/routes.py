"""The route table of Volume."""

from __future__ import annotations

from kilonova.api.routes import Route
from kilonova.api.volume import (
    attachments,
    extensions,
    quotas,
    services,
    snapshots,
    type_access,
    type_extra_specs,
    types,
    versions,
    volume_actions,
    volume_connections,
    volume_metadata,
    volumes,
)

ROUTES: list[Route] = [
    *versions.ROUTES,
    *volumes.ROUTES,
    *volume_actions.ROUTES,
    *volume_connections.ROUTES,
    *volume_metadata.ROUTES,
    *snapshots.ROUTES,
    *attachments.ROUTES,
    *types.ROUTES,
    *type_extra_specs.ROUTES,
    *type_access.ROUTES,
    *quotas.ROUTES,
    *services.ROUTES,
    *extensions.ROUTES,
]
