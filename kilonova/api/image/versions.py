"""/image and /image/versions: which versions there are. Anybody may ask; clients go on where the links point."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content

CURRENT = "v2.9"
SUPPORTED = ("v2.7", "v2.6", "v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0")


async def choices(call: Call) -> Response:
    return answer(_versions(call), 300)


async def versions(call: Call) -> Response:
    return answer(_versions(call))


def _versions(call: Call) -> dict[str, Content]:
    links = [{"rel": "self", "href": call.url("/v2/")}]
    named = [(CURRENT, "CURRENT"), *((version, "SUPPORTED") for version in SUPPORTED)]
    return {"versions": [{"id": version, "status": status, "links": links} for version, status in named]}
