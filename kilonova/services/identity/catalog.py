"""The catalog: our own services, computed from the public address, and what an operator registered beside them."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from kilonova.domain.json import Json, JsonObject
from kilonova.records.kinds import Record
from kilonova.services.identity.snapshot import IdentitySnapshot

REGION = "RegionOne"
INTERFACES = ("public", "internal", "admin")
OWN = (  # type, name, path below the public address
    ("identity", "keystone", "/identity/v3"),
    ("compute", "nova", "/compute/v2.1"),
    ("image", "glance", "/image"),
    ("network", "neutron", "/network"),
    ("placement", "placement", "/placement"),
    ("block-storage", "cinder", "/volume/v3"),
    ("volumev3", "cinderv3", "/volume/v3"),  # names that old clients look for
)


def _id_of(*parts: str) -> str:
    """Return an id made from these names: always the same, because our own catalog is not stored."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


@lru_cache
def own_services() -> tuple[Record, ...]:
    return tuple(
        {"id": _id_of("service", type_), "type": type_, "name": name, "description": "", "enabled": True}
        for type_, name, _ in OWN
    )


@lru_cache
def own_endpoints(public_url: str) -> tuple[Record, ...]:
    return tuple(
        {
            "id": _id_of("endpoint", type_, interface),
            "service_id": _id_of("service", type_),
            "interface": interface,
            "region_id": REGION,
            "url": public_url + path,
            "enabled": True,
        }
        for type_, _, path in OWN
        for interface in INTERFACES
    )


def own_regions() -> tuple[Record, ...]:
    return ({"id": REGION, "description": "", "parent_region_id": None},)


def catalog(snapshot: IdentitySnapshot, public_url: str, project_id: str = "") -> list[JsonObject]:
    """Return the catalog for a token. A service without an endpoint is useless and left out."""
    by_service: dict[Json, list[JsonObject]] = {}
    for endpoint in (*own_endpoints(public_url), *snapshot.endpoints):
        url = filled(endpoint["url"], project_id)
        if url is not None:
            region = endpoint["region_id"]
            view = {"id": endpoint["id"], "interface": endpoint["interface"], "url": url}
            by_service.setdefault(endpoint["service_id"], []).append({**view, "region": region, "region_id": region})
    return [
        {"id": one["id"], "type": one["type"], "name": one["name"], "endpoints": by_service[one["id"]]}
        for one in (*own_services(), *snapshot.services)
        if one["id"] in by_service
    ]


_OLD_SIGNS = {"$(project_id)s": "%(project_id)s", "$(tenant_id)s": "%(project_id)s", "%(tenant_id)s": "%(project_id)s"}


def filled(url: str, project_id: str) -> str | None:
    """Return the URL with the project id in the operator's placeholder; None if it has one and there is no project."""
    for old, sign in _OLD_SIGNS.items():
        url = url.replace(old, sign)
    if "%(project_id)s" not in url:
        return url
    return url.replace("%(project_id)s", project_id) if project_id else None
