"""/token-keys: which keys tokens are signed with, and a new one."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer


async def list_(call: Call) -> Response:
    """The newest first; `until` is when the last token of an older one has expired."""
    found = await call.service.identity.keys()
    shown = [{"id": row["id"], "made_at": row["made_at"], "until": row["until"]} for row in found]
    return answer({"token_keys": shown})


async def rotate(call: Call) -> Response:
    return answer({"token_key": await call.service.identity.rotate_keys()}, 201)
