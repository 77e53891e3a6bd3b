"""The API versions: requested by every client before anything else, without a token."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{call.service.public_url}/identity/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


async def choices(call: Call) -> Response:
    version = _version(call)
    return answer({"versions": {"values": [version]}}, 300, {"Location": version["links"][0]["href"]})


async def version(call: Call) -> Response:
    return answer({"version": _version(call)})
