"""Discovery: which versions there are. Needs no token."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.microversions import text_of
from kilonova.api.routes import PUBLIC, Route
from kilonova.api.volume.dialect import NEWEST, OLDEST

DOCUMENTATION = {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"}


def _version(call: Call) -> dict[str, Content]:
    kind = "application/vnd.openstack.volume+json;version=3"
    return {
        "id": "v3.0",
        "status": "CURRENT",
        "version": text_of(NEWEST),
        "min_version": text_of(OLDEST),
        "updated": "2024-03-08T00:00:00Z",
        "links": [DOCUMENTATION, {"rel": "self", "href": f"{call.service.public_url}/volume/v3/"}],
        "media-types": [{"base": "application/json", "type": kind}],
    }


async def choices(call: Call) -> Response:
    return answer({"versions": [_version(call)]}, 300)


async def show(call: Call) -> Response:
    return answer({"versions": [_version(call)]})


ROOT_ROUTES = [Route(method="GET", path="/", handler=choices, rule=PUBLIC)]
ROUTES = [Route(method="GET", path="/", handler=show, rule=PUBLIC)]
