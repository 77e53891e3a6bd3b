"""Errors as answers: the domain knows no HTTP, here is the table. Nobody outside learns what went wrong inside."""

from __future__ import annotations

import logging

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kilonova.domain.errors import Conflict, Failed, KilonovaError, Refused

logger = logging.getLogger(__name__)

DEFAULT = 409
STATUS = {
    "bad_request": 400,
    "bad_text": 400,
    "bad_times": 400,
    "host_still_up": 400,
    "no_host": 400,
    "not_resized": 400,
    "same_host": 400,
    "unknown_failure": 400,
    "unknown_verb": 400,
    "unauthorized": 401,
    "quota_exceeded": 403,
    "no_guest": 404,
    "no_such_host": 404,
    "not_found": 404,
    "unknown_host": 404,
    "busy": 409,
    "ended": 409,
    "exists": 409,
    "host_down": 409,
    "host_unknown": 409,
    "idempotency_key_reused": 409,
    "invalid_state": 409,
    "no_return": 409,
    "not_running": 409,
    "unpaid_debts": 409,
    "no_answer": 503,
}


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def fault(status: int, code: str, message: str) -> Response:
    return answer({"error": {"code": code, "message": message}}, status)


async def on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused | Failed)
    return fault(STATUS.get(error.code, DEFAULT), error.code, error.message)


async def on_conflict(request: Request, error: Exception) -> Response:
    return fault(409, "conflict", "another request was faster; look again, then repeat")


async def on_unavailable(request: Request, error: Exception) -> Response:
    """A database or host that does not answer: the details are for the log."""
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    return fault(503, "unavailable", "a part of the cloud does not answer; repeat the request later")


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
    detail = f"there is nothing at {request.url.path}" if error.status_code == 404 else str(error.detail)
    return fault(error.status_code, words.get(error.status_code, "bad_request"), detail)


async def on_unexpected(request: Request, error: Exception) -> Response:
    return fault(500, "unexpected", "something unexpected happened; the log of the server says what")


EXCEPTION_HANDLERS = {
    Refused: on_refused,
    Failed: on_refused,
    Conflict: on_conflict,
    KilonovaError: on_unavailable,
    HTTPException: on_http,
    Exception: on_unexpected,
}
