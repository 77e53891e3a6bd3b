"""The dialect of Kilonova's own REST: no versions, faults with a code for programs and a sentence for people."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.routes import Version
from kilonova.api.service_app import Dialect

CODES = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}
CODES |= {413: "too_large", 415: "bad_media_type"}


STATUS = {  # of what a host uploads
    "bad_image_token": 403,
    "image_gone": 410,
    "image_invalid": 415,
    "image_over_quota": 413,
    "image_size_differs": 400,
    "image_storage": 503,
    "image_storage_full": 507,
    "image_too_large": 413,
}


class OwnDialect(Dialect):
    prefix = "/kilonova/v1"
    status = STATUS

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        return answer({"error": {"code": code or CODES.get(status, "bad_request"), "message": message}}, status)
