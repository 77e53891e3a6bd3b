"""The version document; it needs no token."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.placement.dialect import NEWEST, OLDEST, text_of
from kilonova.api.placement.view import dated
from kilonova.api.routes import PUBLIC, Route


async def show(call: Call) -> Response:
    spoken = {"id": f"v{text_of(OLDEST)}", "min_version": text_of(OLDEST), "max_version": text_of(NEWEST)}
    return dated(call, {"versions": [{**spoken, "status": "CURRENT", "links": [{"rel": "self", "href": ""}]}]})


ROUTES = [Route(method="GET", path="/", handler=show, rule=PUBLIC)]
