"""Microversions as Nova and Cinder speak them: a header that may name several services, a number or `latest`."""

from __future__ import annotations

import re

from starlette.requests import Request

from kilonova.api.routes import Version
from kilonova.domain.errors import Refused

HEADER = "OpenStack-API-Version"
_NUMBER = re.compile(r"^([1-9]\d*)\.([1-9]\d*|0)$")
_PROJECT = re.compile(r"^/([0-9a-f-]+)(?=/|$)")


def text_of(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def requested(request: Request, service: str) -> str | None:
    """Return the version of this service in the header, or None."""
    for part in request.headers.get(HEADER, "").split(","):
        name, _, version = part.strip().partition(" ")
        if name.lower() == service:
            return version.strip().lower()
    return None


def spoken(given: str | None, oldest: Version, newest: Version) -> Version:
    """Return the requested version, by default the oldest. Raise `Refused` if it is not supported."""
    if given is None:
        return oldest
    if given == "latest":
        return newest
    match = _NUMBER.match(given)
    if match is None:
        raise Refused(
            400, f"API Version String {given[:40]} is of invalid format. Must be of format MajorNum.MinorNum."
        )
    version = int(match[1][:6]), int(match[2][:6])
    if not oldest <= version <= newest:
        known = f"Minimum is {text_of(oldest)} and maximum is {text_of(newest)}."
        raise Refused(406, f"Version {given[:40]} is not supported by the API. {known}")
    return version


def without_project(path: str) -> tuple[str, str]:
    """Split a path into the rest and the project id, which may be its first segment."""
    match = _PROJECT.match(path)
    return (path[match.end() :], match[1]) if match else (path, "")
