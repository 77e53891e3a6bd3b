"""Names or ids: what was typed becomes the id that the API takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from kilonova.cli.rest import COMPUTE, IMAGE, NETWORK, Cloud, segment
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject

_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
FORBIDDEN = ("403", "forbidden")


def is_id(given: str) -> bool:
    return _UUID.fullmatch(given) is not None


def server_id(cloud: Cloud, given: str) -> str:
    """Return a server's id. Owners, who may not list servers here, give the id instead of a name."""
    if is_id(given):
        return given.lower()
    try:
        servers = list(cloud.all("/servers", "servers", name=given))
    except Refused as why:
        if why.code in FORBIDDEN:
            text = f"server {given!r}: only administrators can use names here; use its id (openstack server list)"
            raise Refused("not_found", text) from None
        raise
    return _only("server", given, servers, lambda one: f"{one['id']} ({one['host'] or 'no host'})")


def host_name(cloud: Cloud, given: str) -> str:
    return str(cloud.get(f"/hosts/{segment(given)}")["host"]["name"]) if is_id(given) else given


def flavor_id(cloud: Cloud, given: str) -> str:
    flavors = cloud.get("/flavors?is_public=None", COMPUTE)["flavors"]
    return given if any(one["id"] == given for one in flavors) else _named("flavor", given, flavors)


def image_id(cloud: Cloud, given: str) -> str:
    return given if is_id(given) else _named("image", given, cloud.get(f"/images?{_name(given)}", IMAGE)["images"])


def network_id(cloud: Cloud, given: str) -> str:
    if is_id(given):
        return given
    return _named("network", given, cloud.get(f"/networks?{_name(given)}", NETWORK)["networks"])


def _name(given: str) -> str:
    return urlencode({"name": given})


def _named(kind: str, given: str, records: Iterable[JsonObject]) -> str:
    return _only(kind, given, [one for one in records if one["name"] == given], lambda one: str(one["id"]))


def _only(kind: str, given: str, matches: Sequence[JsonObject], describe: Any) -> str:
    if not matches:
        raise Refused("not_found", f"{kind} {given!r}: not found, neither by name nor by id")
    if len(matches) > 1:
        ids = ", ".join(describe(one) for one in matches)
        raise Refused("ambiguous", f"{kind} {given!r}: {len(matches)} have this name; use the id: {ids}")
    return str(matches[0]["id"])
