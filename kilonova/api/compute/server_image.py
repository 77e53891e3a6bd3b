"""POST /servers/{server}/action createImage: an image of a server. It has the bytes of the root disk, or it names
snapshots of the volumes, if the server boots from one."""

from __future__ import annotations

import uuid

from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer, nothing
from kilonova.api.compute.rebuild_image import root_volume
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import server_of
from kilonova.api.image.attributes import check_settable
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.operations.snapshot import submit_snapshot
from kilonova.services.image.image import MOST_PROPERTIES, PRIVATE
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:servers:create_image"
VOLUME_BACKED = f"{RULE}:allow_volume_backed"
IMAGE_ID = (2, 45)  # in the body, not in Location
NO_QUOTA = (2, 39)  # of metadata
# Properties that a snapshot does not inherit: they describe one image alone, or name snapshots of volumes.
NOT_INHERITED = frozenset(
    (
        *("cache_in_nova", "bittorrent", "cinder_encryption_key_id", "cinder_encryption_key_deletion_policy"),
        *("img_signature", "img_signature_hash_method", "img_signature_key_type", "img_signature_certificate_uuid"),
        *("block_device_mapping", "bdm_v2", "mappings", "root_device_name"),
        *("image_id", "image_name", "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size"),
    )
)


async def create_image(call: Call) -> Response:
    request, key = call.body["createImage"], idempotency_key(call)
    image_id = _image_id(call, key)
    if (again := await repeated(call)) is not None:
        return _answer(call, image_id, again)
    record, metadata = await server_of(call), request.get("metadata", {})
    if not call.at(*NO_QUOTA):
        await call.service.quotas.check_metadata(call.caller, len(metadata))
    accepted = await begin_snapshot(call, record, image_id, request["name"], metadata, key)
    return _answer(call, image_id, accepted.operation_id)


async def begin_snapshot(
    call: Call, record: ServerRecord, image_id: str, name: str, metadata: dict[str, str], key: IdempotencyKey | None
) -> Accepted:
    operation, params = await snapshot_of(call, record, image_id, name, metadata)
    ask = Ask(kind=operation, server_id=record.id, cause=call.cause, params=params, key=key)
    return await submit_snapshot(call.engine, ask)


async def snapshot_of(
    call: Call, record: ServerRecord, image_id: str, name: str, metadata: dict[str, str]
) -> tuple[str, dict[str, Json]]:
    """Return the operation and its parameters after the checks of the request."""
    check_settable(metadata, new=True)
    volume_backed = root_volume(record) is not None
    if volume_backed:
        call.require(VOLUME_BACKED, project_id=record.project_id, user_id=record.user_id)
    else:
        await _check_room(call, record.project_id)
    properties = {
        **{key: value for key, value in record.details.image_properties.items() if key not in NOT_INHERITED},
        "base_image_ref": record.image_ref or "",
        "image_location": "snapshot",
        "image_state": "available",
        "owner_id": record.project_id,
        "instance_uuid": record.id,
        "user_id": call.caller.user_id,
        "image_type": "snapshot",
        **metadata,
    }
    if len(properties) > MOST_PROPERTIES:
        text = f"An image may have at most {MOST_PROPERTIES} properties; this one would have {len(properties)}."
        raise Refused(403, text)
    image: JsonObject = {
        "id": image_id,
        "name": name,
        "owner": record.project_id,
        "visibility": PRIVATE,
        "min_disk": 0 if volume_backed else record.flavor.disk_gb,
        "min_ram": await _least_memory(call, record),
        "properties": properties,
    }
    return "snapshot_volumes" if volume_backed else "snapshot", {"image": image}


async def _check_room(call: Call, project_id: str) -> None:
    """Refuse an image if the quota is already full. Its size is known only after the host has taken the snapshot."""
    usage = await call.service.images.quotas.show(project_id)
    if 0 <= usage.limit <= usage.used:
        text = f"Quota exceeded for images: project {project_id} uses {usage.used} of {usage.limit} bytes"
        raise Refused(403, f"{text}; delete images, or ask for a larger quota")


async def _least_memory(call: Call, record: ServerRecord) -> int:
    """Return the min_ram of the image that the server was made from; 0 if that is gone."""
    if not record.image_ref:
        return 0
    try:
        return (await call.service.images.find(call.caller, record.image_ref)).min_ram
    except Refused:
        return 0


def _image_id(call: Call, key: IdempotencyKey | None) -> str:
    """Return the id of the image; the same for a request that is repeated with its key."""
    if key is None:
        return call.service.world.ids.uuid()
    origin = ("image", call.cause.user_id, call.cause.project_id, key.key, key.route, key.body_hash)
    return str(uuid.UUID(bytes=call.engine.seal.derive("\0".join(origin))[:16], version=4))


def _answer(call: Call, image_id: str, operation: str) -> Response:
    headers = {OPERATION_HEADER: operation}
    if call.at(*IMAGE_ID):
        return answer({"image_id": image_id}, 202, headers)
    return nothing(202, {**headers, "Location": f"{call.service.public_url}/image/v2/images/{image_id}"})


ROUTES = [
    Route(
        method="POST",
        path="/servers/{server}/action",
        handler=create_image,
        rule=RULE,
        body=schemas.CREATE_IMAGE,
        action="createImage",
    )
]
