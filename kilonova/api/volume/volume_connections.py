"""/volumes/{volume}/action: the older way to attach a volume, step by step. Newer clients use /attachments."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.volume_actions import ACTIONS, ADMIN, volume_action
from kilonova.api.volume.volumes import volume_of

MARKS = ("reserve", "unreserve", "begin_detaching", "roll_detaching")


async def mark(call: Call) -> Response:
    volume = await volume_of(call)
    await call.service.volumes.attachments.mark(call.caller, volume.id, call.route.action.removeprefix("os-"))
    return nothing(202)


async def attach(call: Call) -> Response:
    volume, request = await volume_of(call), call.body["os-attach"]
    attributes = {
        "server_id": request.get("instance_uuid"),
        "host": request.get("host_name"),
        "device": request["mountpoint"],
        "mode": request.get("mode", "rw"),
    }
    await call.service.volumes.attachments.attach(call.caller, volume.id, attributes)
    return nothing(202)


async def detach(call: Call) -> Response:
    volume, request = await volume_of(call), call.body["os-detach"] or {}
    await call.service.volumes.attachments.detach(call.caller, volume.id, request.get("attachment_id"))
    return nothing(202)


async def initialize(call: Call) -> Response:
    volume, connector = await volume_of(call), call.body["os-initialize_connection"]["connector"]
    info = await call.service.volumes.attachments.initialize(call.caller, volume.id, connector)
    return answer({"connection_info": {**info, "enforce_multipath": connector.get("enforce_multipath", False)}})


async def terminate(call: Call) -> Response:
    volume, connector = await volume_of(call), call.body["os-terminate_connection"]["connector"]
    await call.service.volumes.attachments.terminate(call.caller, volume.id, connector)
    return nothing(202)


async def force_detach(call: Call) -> Response:
    volume, request = await volume_of(call), call.body["os-force_detach"]
    attachments = call.service.volumes.attachments
    await attachments.detach(call.caller, volume.id, request.get("attachment_id"), force=True)
    return nothing(202)


ROUTES: list[Route] = [
    *(volume_action(f"os-{verb}", mark, ACTIONS + verb, forms.bare(f"os-{verb}")) for verb in MARKS),
    volume_action("os-attach", attach, f"{ACTIONS}attach", forms.ATTACH),
    volume_action("os-detach", detach, f"{ACTIONS}detach", forms.DETACH),
    volume_action("os-initialize_connection", initialize, f"{ACTIONS}initialize_connection", forms.INITIALIZE),
    volume_action("os-terminate_connection", terminate, f"{ACTIONS}terminate_connection", forms.TERMINATE),
    volume_action("os-force_detach", force_detach, f"{ADMIN}force_detach", forms.FORCE_DETACH),
]
