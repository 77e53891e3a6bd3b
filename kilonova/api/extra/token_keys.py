"""/token-keys: which keys tokens are signed with, and a new one."""

from __future__ import annotations

import logging

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.reading import decode, read_body

logger = logging.getLogger(__name__)


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    revoke: bool = False  # the old keys end at once, and every token with them


async def list_(call: Call) -> Response:
    """List the token keys, newest first; a retired key is invalid from `until` on."""
    rows = await call.service.identity.keys()
    keys = [{"id": row["id"], "created_at": row["created_at"], "until": row["until"]} for row in rows]
    return answer({"token_keys": keys})


async def rotate(call: Call) -> Response:
    """Sign tokens with a new key from now on."""
    request = decode(await read_body(call.request) or b"{}", RotateBody)
    key = await call.service.identity.rotate_keys(revoke=request.revoke)
    logger.warning("token keys rotated: key=%s revoked=%s user=%s", key, request.revoke, call.caller.user_id)
    return answer({"token_key": key}, 201)
