"""The dialect of Identity: faults with their number, their title and a sentence."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.routes import Version
from kilonova.api.service_app import Dialect


class IdentityRootDialect(Dialect):
    prefix = "/identity"
    status = {"forbidden": 403}

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        title = HTTPStatus(status).phrase
        return answer({"error": {"code": status, "message": message, "title": title}}, status)

    def decorate(self, response: Response, version: Version, request_id: str) -> None:
        response.headers["x-openstack-request-id"] = request_id
        response.headers["Vary"] = "X-Auth-Token"


class IdentityDialect(IdentityRootDialect):
    prefix = "/identity/v3"
