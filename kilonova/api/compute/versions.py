"""Discovery: which versions there are. Needs no token."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.dialect import MIN
from kilonova.api.compute.schemas.queries import ANY
from kilonova.api.content import Content
from kilonova.api.microversions import text_of
from kilonova.api.routes import PUBLIC, Route

DOCUMENTATION = {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"}


def _href(call: Call, *, legacy: bool) -> str:
    return f"{call.service.public_url}{'/compute/v2/' if legacy else '/compute/v2.1/'}"


def _version(call: Call, *, legacy: bool) -> dict[str, Content]:
    return {
        "id": "v2.0" if legacy else "v2.1",
        "status": "DEPRECATED" if legacy else "CURRENT",
        "version": "" if legacy else call.settings.api.max_microversion,
        "min_version": "" if legacy else text_of(MIN),
        "updated": "2011-01-21T11:33:21Z" if legacy else "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": _href(call, legacy=legacy)}],
    }


def _whole(call: Call, *, legacy: bool) -> dict[str, Content]:
    version = _version(call, legacy=legacy)
    kind = f"application/vnd.openstack.compute+json;version={'2' if legacy else '2.1'}"
    media = [{"base": "application/json", "type": kind}]
    links = [{"rel": "self", "href": _href(call, legacy=legacy)}, DOCUMENTATION]
    return {**version, "links": links, "media-types": media}


async def list_(call: Call) -> Response:
    return answer({"versions": [_version(call, legacy=True), _version(call, legacy=False)]})


async def show(call: Call) -> Response:
    return answer({"version": _whole(call, legacy=False)})


async def show_legacy(call: Call) -> Response:
    return answer({"version": _whole(call, legacy=True)})


async def choices(call: Call) -> Response:
    """A path without a version."""
    versions = []
    for legacy in (True, False):
        version = _whole(call, legacy=legacy)
        href = _href(call, legacy=legacy).rstrip("/") + call.request.scope["service_path"]
        versions.append(
            {
                "id": version["id"],
                "status": version["status"],
                "links": [{"rel": "self", "href": href}],
                "media-types": version["media-types"],
            }
        )
    return answer({"choices": versions}, 300)


ELSEWHERE = Route(method="GET", path="", handler=choices, rule=PUBLIC, query=ANY)
ROOT_ROUTES = [Route(method="GET", path="/", handler=list_, rule=PUBLIC, query=ANY)]
ROUTES = [Route(method="GET", path="/", handler=show, rule=PUBLIC, query=ANY)]
LEGACY_ROUTES = [Route(method="GET", path="/", handler=show_legacy, rule=PUBLIC, query=ANY)]
