"""/volumes/{volume}/action: all actions but attaching, which is in volume_connections.py."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import EVER, Handler, Route, Version
from kilonova.api.volume import forms
from kilonova.api.volume.body_members import without
from kilonova.api.volume.volume_create import find_image, require_type
from kilonova.api.volume.volume_view import time_text
from kilonova.api.volume.volumes import volume_of
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.services.image.image import PRIVATE, PUBLIC, Image
from kilonova.services.image.inspection import QCOW2, RAW
from kilonova.services.volume.changing import Said
from kilonova.services.volume.volume import ATTACHED, DETACHED, IMAGE, IN_USE, RESETTABLE, Volume

ACTIONS = "volume_extension:volume_actions:"
ADMIN = "volume_extension:volume_admin_actions:"
IMAGE_META = "volume_extension:volume_image_metadata:"
MIGRATION_STATES = {"migrating", "error", "success", "completing", "none", "starting"}


async def extend(call: Call) -> Response:
    volume, size = await volume_of(call), int(call.body["os-extend"]["new_size"])
    attached = call.at(3, 42) and volume.status == IN_USE
    if attached:
        call.require("volume:extend_attached_volume", project_id=volume.project_id)
    await call.service.volumes.changes.extend(call.caller, volume.id, size, attached=attached)
    return nothing(202)


async def revert(call: Call) -> Response:
    volume = await volume_of(call)
    await call.service.volumes.changes.revert(call.caller, volume.id, call.body["revert"]["snapshot_id"])
    return nothing(202)


async def reimage(call: Call) -> Response:
    volume, request = await volume_of(call), call.body["os-reimage"]
    reserved = is_true(request.get("reimage_reserved", False))
    if reserved:
        call.require("volume:reimage_reserved", project_id=volume.project_id)
    image = await find_image(call, request["image_id"])
    await call.service.volumes.changes.reimage(call.caller, volume.id, image, reserved=reserved)
    return nothing(202)


async def retype(call: Call) -> Response:
    volume, new = await volume_of(call), call.body["os-retype"]["new_type"]
    await require_type(call, new)
    await call.service.volumes.changes.retype(call.caller, volume.id, new)
    return nothing(202)


async def set_bootable(call: Call) -> Response:
    volume, bootable = await volume_of(call), is_true(call.body["os-set_bootable"]["bootable"])
    await call.service.volumes.changes.set_bootable(call.caller, volume.id, bootable)
    return nothing(200)


async def set_readonly(call: Call) -> Response:
    volume, readonly = await volume_of(call), is_true(call.body["os-update_readonly_flag"]["readonly"])
    await call.service.volumes.changes.set_readonly(call.caller, volume.id, readonly)
    return nothing(202)


async def reset(call: Call) -> Response:
    volume, request = await volume_of(call), call.body["os-reset_status"]
    statuses = {name: value.lower() for name, value in request.items() if value}
    if not statuses:
        raise Refused(400, "Must specify 'status', 'attach_status' or 'migration_status' for update.")
    for name, known in (
        ("status", RESETTABLE),
        ("attach_status", {ATTACHED, DETACHED}),
        ("migration_status", MIGRATION_STATES),
    ):
        if statuses.get(name, next(iter(known))) not in known:
            raise Refused(400, f"{name} {statuses[name][:80]!r} is not one of {', '.join(sorted(known))}.")
    await call.service.volumes.changes.reset(call.caller, volume.id, Said(**statuses))
    return nothing(202)


async def force_delete(call: Call) -> Response:
    volume = await volume_of(call)
    await call.service.volumes.volumes.delete(call.caller, volume.id, force=True)
    return nothing(202)


# -- images -----------------------------------------------------------------------------------------------------------


async def upload(call: Call) -> Response:
    """Upload a volume as an image. The image is recorded first, so that the response has its id; its bytes follow."""
    volume, request = await volume_of(call), call.body["os-volume_upload_image"]
    if request.get("disk_format", RAW) not in (RAW, QCOW2) or (request.get("container_format") or "bare") != "bare":
        raise Refused(400, "Use disk_format raw or qcow2, and container_format bare.")
    visibility = request.get("visibility", PRIVATE)
    if visibility == PUBLIC:
        call.require(f"{ACTIONS}upload_public", project_id=volume.project_id)
    changed, image = await call.service.volumes.changes.upload(
        call.caller,
        volume.id,
        _image(
            volume,
            name=request["image_name"],
            visibility=visibility,
            is_protected=is_true(request.get("protected", False)),
            disk_format=request.get("disk_format", RAW),
        ),
        force=is_true(request.get("force", False)),
    )
    return answer({"os-volume_upload_image": _uploaded(call, changed, image)}, 202)


def _image(volume: Volume, *, name: str, visibility: str, is_protected: bool, disk_format: str) -> Image:
    """Return the new image's record, with the properties that the volume remembers of its own image and that still
    hold."""
    facts = ("image_id", "image_name", "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size")
    properties = {name: value for name, value in volume.image_metadata.items() if name not in facts}
    return Image(
        id="",
        name=name,
        owner=volume.project_id,
        visibility=visibility,
        protected=is_protected,
        container_format="bare",
        disk_format=disk_format,
        properties=properties,
    )


def _uploaded(call: Call, volume: Volume, image: Image) -> dict[str, Content]:
    view: dict[str, Content] = {
        "id": volume.id,
        "updated_at": time_text(volume.updated_at),
        "status": volume.status,
        "display_description": volume.description,
        "size": volume.size,
        "volume_type": {"id": volume.type_id, "name": volume.type_name},
        "image_id": image.id,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "image_name": image.name,
    }
    return view | ({"protected": image.protected, "visibility": image.visibility} if call.at(3, 1) else {})


async def set_image_metadata(call: Call) -> Response:
    volume, given = await volume_of(call), call.body["os-set_image_metadata"]["metadata"]
    volumes = call.service.volumes.volumes
    new = await volumes.edit_metadata(call.caller, volume.id, lambda old: {**old, **given}, IMAGE)
    return answer({"metadata": new})


async def show_image_metadata(call: Call) -> Response:
    return answer({"metadata": (await volume_of(call)).image_metadata})


async def unset_image_metadata(call: Call) -> Response:
    volume, key = await volume_of(call), call.body["os-unset_image_metadata"]["key"]
    await call.service.volumes.volumes.edit_metadata(call.caller, volume.id, without(key, volume.id), IMAGE)
    return nothing(200)


def volume_action(key: str, handler: Handler, rule: str, body: Forms, since: Version = EVER) -> Route:
    path = "/volumes/{volume}/action"
    return Route(method="POST", path=path, handler=handler, rule=rule, body=body, action=key, since=since)


ROUTES = [
    volume_action("os-extend", extend, "volume:extend", forms.EXTEND),
    volume_action("revert", revert, "volume:revert_to_snapshot", forms.REVERT, since=(3, 40)),
    volume_action("os-reimage", reimage, "volume:reimage", forms.REIMAGE, since=(3, 68)),
    volume_action("os-retype", retype, "volume:retype", forms.RETYPE),
    volume_action("os-set_bootable", set_bootable, "volume:update", forms.BOOTABLE),
    volume_action("os-update_readonly_flag", set_readonly, "volume:update_readonly_flag", forms.READONLY),
    volume_action("os-reset_status", reset, f"{ADMIN}reset_status", forms.RESET),
    volume_action("os-force_delete", force_delete, f"{ADMIN}force_delete", forms.bare("os-force_delete")),
    volume_action("os-volume_upload_image", upload, f"{ACTIONS}upload_image", forms.UPLOAD),
    volume_action("os-set_image_metadata", set_image_metadata, f"{IMAGE_META}set", forms.SET_IMAGE_METADATA),
    volume_action(
        "os-show_image_metadata", show_image_metadata, f"{IMAGE_META}show", forms.bare("os-show_image_metadata")
    ),
    volume_action("os-unset_image_metadata", unset_image_metadata, f"{IMAGE_META}remove", forms.UNSET_IMAGE_METADATA),
]
