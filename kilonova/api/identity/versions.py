"""The API versions: requested by every client before anything else, without a token."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.domain.json import JsonObject


def _address(call: Call) -> str:
    return f"{call.service.public_url}/identity/v3/"


def _version(call: Call) -> JsonObject:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": _address(call)}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


async def choices(call: Call) -> Response:
    return answer({"versions": {"values": [_version(call)]}}, 300, {"Location": _address(call)})


async def version(call: Call) -> Response:
    return answer({"version": _version(call)})
