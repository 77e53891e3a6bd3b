"""/attachments: a volume is reserved, connected to a host, complete, and let go."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.routes import Route, Version
from kilonova.api.volume import forms
from kilonova.api.volume.query import ListOptions, QueryFilter, query_of, text, viewer_of
from kilonova.api.volume.volume_view import time_text
from kilonova.services.volume.attachment_steps import connection_of
from kilonova.services.volume.volume import IN_USE, Attachment, Volume

RULE = "volume:attachment_"
SINCE: Version = (3, 27)
LISTED = ListOptions(
    filters={
        "volume_id": QueryFilter("volume_id", text),
        "status": QueryFilter("status", text),
        "attach_status": QueryFilter("status", text),
        "instance_id": QueryFilter("server_id", text),
        "project_id": QueryFilter("project_id", text, admin=True),
    },
    orders={name: name for name in ("id", "status", "volume_id", "created_at")},
)


async def create(call: Call) -> Response:
    request = call.body["attachment"]
    volume = await call.service.volumes.volumes.find(call.caller, request["volume_uuid"])
    call.require(project_id=volume.project_id)
    if volume.multiattach and volume.bootable and volume.status == IN_USE:
        call.require("volume:multiattach_bootable_volume", project_id=volume.project_id)
    volume, attachment = await call.service.volumes.attachments.create(
        call.caller,
        volume.id,
        server_id=request.get("instance_uuid"),
        mode=request.get("mode", "rw"),
        connector=request.get("connector"),
    )
    return answer({"attachment": detail(call, volume, attachment, with_secret=True)})


async def list_(call: Call) -> Response:
    attachments = await call.service.volumes.attachments.list_(viewer_of(call), query_of(call, LISTED))
    return answer({"attachments": [summary(one) for _, one in attachments]})


async def list_detail(call: Call) -> Response:
    attachments = await call.service.volumes.attachments.list_(viewer_of(call), query_of(call, LISTED))
    return answer({"attachments": [detail(call, volume, one) for volume, one in attachments]})


async def _find(call: Call) -> tuple[Volume, Attachment]:
    volume, attachment = await call.service.volumes.attachments.find(call.caller, call.path["attachment"])
    call.require(project_id=attachment.project_id)
    return volume, attachment


async def show(call: Call) -> Response:
    return answer({"attachment": detail(call, *await _find(call))})


async def update(call: Call) -> Response:
    await _find(call)
    connector = call.body["attachment"]["connector"]
    volume, attachment = await call.service.volumes.attachments.connect(call.caller, call.path["attachment"], connector)
    return answer({"attachment": detail(call, volume, attachment, with_secret=True)})


async def complete(call: Call) -> Response:
    await _find(call)
    await call.service.volumes.attachments.complete(call.caller, call.path["attachment"])
    return nothing(204)


async def delete(call: Call) -> Response:
    """Delete an attachment, and return the remaining ones of the volume."""
    await _find(call)
    left = await call.service.volumes.attachments.delete(call.caller, call.path["attachment"])
    return answer({"attachments": [summary(one) for one in left]})


def summary(one: Attachment) -> dict[str, Content]:
    return {"id": one.id, "status": one.status, "instance": one.server_id, "volume_id": one.volume_id}


def detail(call: Call, volume: Volume, one: Attachment, *, with_secret: bool = False) -> dict[str, object]:
    """Return an attachment. Without `with_secret`, only services and administrators see the secret."""
    has_secret = with_secret or call.caller.is_admin or "service" in call.caller.roles
    return {
        **summary(one),
        "attached_at": time_text(one.attached_at) or "",
        "detached_at": "",
        "attach_mode": one.mode,
        "connection_info": connection_of(call.service.volumes.context.seal, volume, one, with_secret=has_secret),
    }


ATTACHMENT = "/attachments/{attachment}"
ROUTES = [
    Route(
        method="POST",
        path="/attachments",
        handler=create,
        rule=f"{RULE}create",
        body=forms.CREATE_ATTACHMENT,
        since=SINCE,
    ),
    Route(method="GET", path="/attachments", handler=list_, rule="volume:get_all", since=SINCE),
    Route(method="GET", path="/attachments/detail", handler=list_detail, rule="volume:get_all", since=SINCE),
    Route(method="GET", path=ATTACHMENT, handler=show, rule="volume:get", since=SINCE),
    Route(
        method="PUT", path=ATTACHMENT, handler=update, rule=f"{RULE}update", body=forms.UPDATE_ATTACHMENT, since=SINCE
    ),
    Route(method="DELETE", path=ATTACHMENT, handler=delete, rule=f"{RULE}delete", since=SINCE),
    Route(
        method="POST",
        path=f"{ATTACHMENT}/action",
        handler=complete,
        rule=f"{RULE}complete",
        body=forms.bare("os-complete"),
        action="os-complete",
        since=(3, 44),
    ),
]
