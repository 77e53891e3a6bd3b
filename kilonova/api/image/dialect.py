"""The dialect of Image: no microversions, faults with a sentence, the status and its name."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.routes import Version
from kilonova.api.service_app import Dialect
from kilonova.domain.errors import Refused

STATUS = {
    "bad_marker": 400,
    "image_exists": 409,
    "image_gone": 410,
    "image_invalid": 415,
    "image_limit": 413,
    "image_member_exists": 409,
    "image_member_not_found": 404,
    "image_over_quota": 413,
    "image_not_active": 409,
    "image_not_found": 404,
    "image_not_queued": 409,
    "image_protected": 403,
    "image_size_differs": 400,
    "image_storage": 503,
    "image_storage_full": 413,
    "image_too_large": 413,
    "image_without_format": 400,
}
ROOTS = ("/", "/versions/")


class ImageDialect(Dialect):
    prefix = "/image"
    status = STATUS

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        title = HTTPStatus(status).phrase
        return answer({"message": message, "code": f"{status} {title}", "title": title}, status)

    def path_of(self, call_path: str) -> tuple[str, str]:
        """Refuse `/images/`, where an id is missing. It is not the list: clients also delete by such a path."""
        if call_path.endswith("/") and call_path not in ROOTS:
            raise Refused(404, "The resource could not be found.")
        return call_path, ""
