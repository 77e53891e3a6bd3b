"""How Placement speaks: one version for now, errors as a list."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.face import Manner
from kilonova.api.rejected import Rejected
from kilonova.api.routes import EVER, Version

NEWEST: Version = (1, 0)
HEADER = "OpenStack-API-Version"
TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
TITLES |= {406: "Not Acceptable", 409: "Conflict", 413: "Payload Too Large", 415: "Unsupported Media Type"}


def text_of(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


class PlacementManner(Manner):
    prefix = "/placement"
    newest = NEWEST

    def version(self, request: Request) -> Version:
        for part in request.headers.get(HEADER, "").split(","):
            service, _, given = part.strip().partition(" ")
            if service.lower() == "placement" and given.strip().lower() != "latest":
                return _known(given.strip())
        return NEWEST

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        error = {"status": status, "title": TITLES.get(status, "Error"), "detail": message}
        if status == 406:
            error |= {"min_version": text_of(NEWEST), "max_version": text_of(NEWEST)}
        return answer({"errors": [error]}, status)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        response.headers["x-openstack-request-id"] = request_id
        response.headers["Vary"] = HEADER
        if version != EVER:
            response.headers[HEADER] = f"placement {text_of(version)}"


def _known(given: str) -> Version:
    found = re.fullmatch(r"([1-9]\d{0,4})\.(0|[1-9]\d{0,4})", given)
    if found is None:
        raise Rejected(400, f"invalid version string: {given[:40]}")
    version = int(found[1]), int(found[2])
    if version != NEWEST:
        raise Rejected(406, f"Unacceptable version header: {given}")
    return version
