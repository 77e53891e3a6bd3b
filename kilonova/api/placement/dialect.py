"""The dialect of Placement: versions 1.0 to 1.39, JSON bodies, errors as a list with codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from kilonova.api.call import answer
from kilonova.api.content import Content
from kilonova.api.placement.codes import STATUS, UNDEFINED, code_of
from kilonova.api.placement.forms import Misshapen
from kilonova.api.reading import parsed
from kilonova.api.routes import EVER, PUBLIC, Route, Version
from kilonova.api.service_app import REQUEST_ID, Dialect, ServiceApp
from kilonova.domain.errors import Refused
from kilonova.placement import providers

OLDEST: Version = (1, 0)
NEWEST: Version = (1, 39)
WITH_CODES: Version = (1, 23)
MAX_BODY = 16 * 1024 * 1024  # a reshape of a whole rack is one body
HEADER = "OpenStack-API-Version"
JSON = "application/json"
TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
TITLES |= {406: "Not Acceptable", 409: "Conflict", 413: "Payload Too Large", 415: "Unsupported Media Type"}
TITLES |= {500: "Internal Server Error", 503: "Service Unavailable"}
_VERSION = re.compile(r"([1-9]\d{0,4}|0)\.(0|[1-9]\d{0,4})", re.ASCII)


def text_of(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


class PlacementDialect(Dialect):
    newest = NEWEST
    status: Mapping[str, int] = STATUS

    def __init__(self, prefix: str = "/placement") -> None:
        self.prefix = prefix

    def version(self, request: Request) -> Version:
        """Return the last version that the headers give for placement, by default the oldest."""
        given = ""
        for part in ",".join(request.headers.getlist(HEADER)).split(","):
            service, _, version = part.strip().partition(" ")
            if service.lower() == "placement":
                given = version.strip()
        return _known(given) if given else OLDEST

    def screen(self, request: Request, route: Route) -> None:
        headers = request.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind and headers.get("content-length", "0").strip("0"):
            raise Refused(400, "content-type header required when content-length > 0")
        if route.body is not None and kind != JSON:
            raise Refused(415, f"The media type {kind[:80] or None} is not supported, use {JSON}")
        if route.method == "GET" and route.rule != PUBLIC and not accepts_json(headers.get("accept", "")):
            raise Refused(406, f"Only {JSON} is provided")

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        error: dict[str, Content] = {"status": status, "title": TITLES.get(status, "Error"), "detail": message}
        if version >= WITH_CODES:
            error["code"] = code_of(code) or UNDEFINED
        if status == 406 and version == EVER:
            error |= {"min_version": text_of(OLDEST), "max_version": text_of(NEWEST)}
        return answer({"errors": [error]}, status)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        response.headers["x-openstack-request-id"] = request_id
        response.headers["Vary"] = HEADER.lower()
        if version != EVER:
            response.headers[HEADER] = f"placement {text_of(version)}"


class PlacementApp(ServiceApp):
    """Bodies may be large, and errors name the request."""

    max_body = MAX_BODY

    async def _answer(self, request: Request, request_id: str, version: Version) -> Response:
        """Report an unknown provider before any error in the body."""
        try:
            return await super()._answer(request, request_id, version)
        except Misshapen:
            match = self.router.find(request.scope["service_path"])
            if match is not None and "provider" in match[1]:
                await providers.read(self.service.world.db.placement, match[1]["provider"])
            raise

    async def _body(self, request: Request) -> Any:
        body = await self._bytes(request)
        try:
            return parsed(body) if body else None
        except Refused as why:
            raise Refused(400, f"Malformed JSON: {why.message}") from None

    def _fault(self, request: Request, error: Exception, version: Version) -> Response:
        response = super()._fault(request, error, version)
        accept = request.headers.get("accept", "")
        if "text/html" in accept and not accepts_json(accept):
            return _page(response)
        document = parsed(bytes(response.body))
        document["errors"][0]["request_id"] = request.scope[REQUEST_ID]
        again = answer(document, response.status_code)
        again.headers.update({name: value for name, value in response.headers.items() if name not in again.headers})
        return again


def accepts_json(accept: str) -> bool:
    if not accept:
        return True
    for part in accept.split(","):
        kind, _, rest = part.strip().lower().partition(";")
        if kind.strip() in (JSON, "application/*", "*/*", "*") and not re.search(r"\bq=0(\.0*)?\s*(;|$)", rest):
            return True
    return False


def _page(response: Response) -> Response:
    """Return the error as HTML, for a client that accepts nothing else."""
    error = parsed(bytes(response.body))["errors"][0]
    page = HTMLResponse(f"<html><h1>{error['title']}</h1><p>{escape(error['detail'])}</p></html>", response.status_code)
    page.headers.update({name: value for name, value in response.headers.items() if name not in page.headers})
    return page


def _known(given: str) -> Version:
    if given.lower() == "latest":
        return NEWEST
    match = _VERSION.fullmatch(given)
    if match is None:
        raise Refused(400, f"invalid version string: {given[:40]}")
    version = int(match[1]), int(match[2])
    if not OLDEST <= version <= NEWEST:
        raise Refused(406, f"Unacceptable version header: {given}")
    return version
