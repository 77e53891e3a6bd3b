"""Parse requests: bodies of a known form, bounded in size, and numbers within their limits."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from kilonova.api.forms import Forms
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused

T = TypeVar("T")
MAX_BODY = 1024 * 1024
MAX_DEPTH = 100  # objects and lists within each other; nothing here needs ten, and checks of forms end at 255
NUL = b"\\u0000"
MOST = 1000  # elements of a page
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"the request body is larger than {MAX_BODY} bytes")
    return bytes(body)


def parsed(body: bytes | bytearray) -> Any:
    """JSON of any form. Raise `Refused` (400)."""
    if NUL in body:  # no database takes it in a text
        raise Refused(400, "A string must not contain the NUL character")
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "Malformed request body") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deeper(document, MAX_DEPTH):
        raise Refused(400, f"Malformed request body: it is nested more than {MAX_DEPTH} deep")
    return document


def _is_deeper(document: Any, most: int) -> bool:
    level = [document]
    for _ in range(most):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [one for each in inside for one in each]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def decode(body: bytes, form: type[T]) -> T:
    """Decode a body of Kilonova's own REST, whose forms are types. Errors have the same sentences as those of other
    forms."""
    document = parsed(body)
    _forms(cast(Hashable, form)).check(document, EVER)
    return msgspec.convert(document, form)


@cache
def _forms(form: Any) -> Forms:
    schema = msgspec.json.schema(form)
    return Forms(_inlined(schema, schema.pop("$defs", {})))


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """Return the schema without references: errors are located by their place in the schema."""
    if isinstance(schema, list):
        return [_inlined(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {name: _inlined(each, parts) for name, each in schema.items()}


def limit_of(request: Request) -> int:
    given = request.query_params.get("limit", str(MOST))
    number = int(given.lstrip("0")[:9] or 0) if given.isascii() and given.isdigit() else 0
    if not 1 <= number <= MOST:
        raise Refused("bad_request", f"limit={given[:40]}: must be 1 to {MOST}")
    return number


def is_uuid(text: str) -> bool:
    """Return whether the text is a UUID, with or without hyphens, in any case."""
    return _UUID.fullmatch(text) is not None
