"""Reading requests: bodies of a known form, bounded in size; numbers within their limits."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from kilonova.api.rejected import Rejected
from kilonova.domain.errors import Refused

T = TypeVar("T")
MAX_BODY = 1024 * 1024
MAX_DEPTH = 100  # objects and lists within each other; nothing here needs ten, and checks of forms end at 255
NUL = b"\\u0000"
MOST = 1000  # elements of a page


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"a body may have {MAX_BODY} bytes")
    return bytes(body)


def parsed(body: bytes | bytearray) -> Any:
    """JSON of any form. Raises `Rejected` (400)."""
    if NUL in body:  # no database takes it in a text
        raise Rejected(400, "A text may not hold the character NUL")
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Rejected(400, "Malformed request body") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deeper(found, MAX_DEPTH):
        raise Rejected(400, f"Malformed request body: it is nested more than {MAX_DEPTH} deep")
    return found


def _is_deeper(found: Any, most: int) -> bool:
    level = [found]
    for _ in range(most):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [one for each in inside for one in each]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def decode(body: bytes, form: type[T]) -> T:
    if NUL in body:  # no database takes it in a text
        raise Refused("bad_request", "a text may not hold the character NUL")
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise Refused("bad_request", f"the body is not as it must be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("bad_request", "the body is no JSON") from None


def limit_of(request: Request) -> int:
    given = request.query_params.get("limit", str(MOST))
    if not given.isascii() or not given.isdigit() or not given.strip("0"):
        raise Refused("bad_request", f"limit={given[:40]} is not allowed; say 1 to {MOST}")
    return min(int(given.lstrip("0")[:9]), MOST)
