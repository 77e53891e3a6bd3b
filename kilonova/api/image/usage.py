"""/v2/info/usage: what the caller's project has of images and may have, in Glance's words: MiB."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer

MEBIBYTE = 1024**2


async def show(call: Call) -> Response:
    usage = await call.service.images.quotas.show(call.caller.project_id)
    limit = usage.limit if usage.limit < 0 else usage.limit // MEBIBYTE
    size = {"usage": -(-usage.used // MEBIBYTE), "limit": limit}
    return answer({"usage": {"image_size_total": size, "image_count_total": {"usage": usage.images, "limit": -1}}})
