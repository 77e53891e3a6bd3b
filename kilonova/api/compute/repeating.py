"""A request that carries an Idempotency-Key can be sent again: it is done once, and answered the same both times."""

from __future__ import annotations

import functools
import hashlib
import secrets

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.routes import Handler
from kilonova.domain.errors import Refused
from kilonova.engine.accept import IdempotencyKey
from kilonova.engine.submit import known_operation

KEY_LENGTH = 255


def idempotency_key(call: Call) -> IdempotencyKey | None:
    """Return the key with the requested path: the same key for another server is another request."""
    given = call.request.headers.get("idempotency-key")
    if given is None:
        return None
    if not 0 < len(given) <= KEY_LENGTH:
        raise Refused(400, f"Idempotency-Key: must have 1 to {KEY_LENGTH} characters")
    route = f"{call.route.method} {call.route.path.format(**call.path)}"
    return IdempotencyKey(given, route, hashlib.sha256(msgspec.json.encode(call.body, order="sorted")).hexdigest())


async def repeated(call: Call) -> str | None:
    """Return the operation of an earlier request with the same key, whatever has become of the server since."""
    key = idempotency_key(call)
    known = await known_operation(call.engine, key, call.cause) if key is not None else None
    return known.operation_id if known is not None else None


def repeatable(handler: Handler) -> Handler:
    """Repeat a refused request if a concurrent request with the same key may have caused the refusal."""

    @functools.wraps(handler)
    async def handle(call: Call) -> Response:
        try:
            return await handler(call)
        except Refused:
            if "idempotency-key" not in call.request.headers or await repeated(call) is None:
                raise
        return await handler(call)

    return handle


def random_text(call: Call, purpose: str, alphabet: str, length: int) -> str:
    """Return random text. Every character is equally likely: bytes above the last whole alphabet are skipped.

    The same key gives the same text again, so it need not be stored. Without a key, one call to the kernel yields all
    the bytes; secrets.choice makes one call for each character, twenty per create.
    """
    key, size = idempotency_key(call), len(alphabet)
    usable, text, turn = 256 - 256 % size, "", 0
    while len(text) < length:
        turn += 1
        if key is None:
            drawn = secrets.token_bytes(2 * length)
        else:
            whose = (call.cause.user_id, call.cause.project_id, key.key, key.route, key.body_hash)
            drawn = call.engine.seal.derive("\0".join((purpose, str(turn), *(name or "" for name in whose))))
        text += "".join(alphabet[byte % size] for byte in drawn if byte < usable)
    return text[:length]
