"""The dialect of Volume: microversions 3.0 to 3.71, Cinder's names for faults, the project in the path or not."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.content import Content
from kilonova.api.microversions import HEADER, requested, spoken, text_of, without_project
from kilonova.api.routes import EVER, Version
from kilonova.api.service_app import Dialect
from kilonova.domain.errors import Refused

OLDEST: Version = (3, 0)
NEWEST: Version = (3, 71)
FAULTS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    501: "notImplemented",
    503: "serviceUnavailable",
}
STATUS = {
    "attachment_conflict": 409,
    "attachment_not_found": 404,
    "attachment_of_compute": 409,
    "attachment_unconnected": 400,
    "default_type_missing": 500,
    "image_limit": 413,
    "image_not_active": 400,
    "image_not_found": 400,
    "invalid_input": 400,
    "invalid_snapshot": 400,
    "invalid_type": 400,
    "invalid_volume": 400,
    "metadata_not_found": 404,
    "no_backend": 503,
    "over_quota": 413,
    "service_not_found": 404,
    "snapshot_not_found": 404,
    "type_access_exists": 409,
    "type_access_not_found": 404,
    "type_exists": 409,
    "type_in_use": 400,
    "type_not_found": 404,
    "type_spec_not_found": 404,
    "volume_not_found": 404,
    "volume_too_large": 413,
}


class VolumeDialect(Dialect):
    prefix = "/volume/v3"
    newest = NEWEST
    status = STATUS

    def version(self, request: Request) -> Version:
        return spoken(requested(request, "volume"), OLDEST, NEWEST)

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        fault: dict[str, Content] = {"code": status, "message": message}
        if status == 413:
            fault["retryAfter"] = "0"
        return answer({FAULTS.get(status, "computeFault"): fault}, status)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        headers = response.headers
        headers["x-openstack-request-id"] = headers["x-compute-request-id"] = request_id
        if version != EVER:
            headers[HEADER] = f"volume {text_of(version)}"
        headers["Vary"] = HEADER

    def path_of(self, call_path: str) -> tuple[str, str]:
        """Refuse `/volumes/`, where an id is missing. It is not the list: clients also delete by such a path."""
        path, project = without_project(call_path)
        if path.endswith("/") and path != "/":
            raise Refused(404, "The resource could not be found.")
        return path, project


class VolumeRootDialect(VolumeDialect):
    """/volume itself: only says which versions there are."""

    prefix = "/volume"

    def version(self, request: Request) -> Version:
        return EVER

    def path_of(self, call_path: str) -> tuple[str, str]:
        return call_path, ""
