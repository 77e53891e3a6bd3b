"""/ha: the observations and actions of the failure watch; an administrator disarms or arms it."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.reading import decode, read_body
from kilonova.domain.errors import Refused
from kilonova.hosts.failures import arm_watch, disarm_watch, watch_status

logger = logging.getLogger(__name__)


class FailureWatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: Literal["disarm", "arm"]
    seconds: float | None = None  # of a disarm
    reason: Annotated[str, Meta(max_length=1000)] = ""


async def show(call: Call) -> Response:
    """Show the silent hosts, the evidence and the reaction to each, and the newest records."""
    return answer({"ha": await watch_status(call.engine)})


async def change(call: Call) -> Response:
    """Suspend automatic evacuation for some time, or resume it."""
    request = decode(await read_body(call.request), FailureWatchBody)
    user = call.cause.user_id
    if request.action == "disarm":
        if request.seconds is None:
            raise Refused("bad_request", "seconds is missing: for how long shall the watch do nothing?")
        await disarm_watch(call.engine, request.seconds, request.reason, call.cause)
        logger.warning("failure watch disarmed: seconds=%g user=%s reason=%s", request.seconds, user, request.reason)
    else:
        await arm_watch(call.engine)
        logger.warning("failure watch armed: user=%s", user)
    return answer({"ha": await watch_status(call.engine)})
