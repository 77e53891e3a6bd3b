"""The API versions, and the collections of the only one."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer

COLLECTIONS = {
    "network": "networks",
    "subnet": "subnets",
    "port": "ports",
    "security_group": "security-groups",
    "security_group_rule": "security-group-rules",
    "router": "routers",
    "floatingip": "floatingips",
}


async def versions(call: Call) -> Response:
    """List the versions."""
    links = [{"rel": "self", "href": call.url("/v2.0/")}]
    return answer({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})


async def resources(call: Call) -> Response:
    """List the collections."""
    collections = [*COLLECTIONS.items(), ("extension", "extensions"), ("quota", "quotas")]
    return answer({"resources": [_resource(call, name, path) for name, path in collections]})


def _resource(call: Call, name: str, path: str) -> dict[str, object]:
    links = [{"rel": "self", "href": call.url(f"/v2.0/{path}")}]
    return {"name": name, "collection": path, "links": links}
