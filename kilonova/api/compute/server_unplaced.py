"""POST /servers/{server}/action rebuild of a server that never had a host: schedule it again under its id.

The original request is checked again, as for a new server: networks, ports and volumes may be gone by now. The
microversion is our own; upstream may take the same number for something else.
"""

from __future__ import annotations

import msgspec

from kilonova.api.call import Call
from kilonova.api.compute.repeating import idempotency_key
from kilonova.api.compute.server import owner_of
from kilonova.api.routes import Version
from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_list, as_object, as_text, json_object
from kilonova.domain.network import WantedPort
from kilonova.domain.volume import WantedVolume
from kilonova.engine.accept import Accepted, Ask
from kilonova.operations.checks.hardware import with_hardware
from kilonova.operations.checks.images import check_fit, find_image, image_details
from kilonova.operations.create.devices import wrong_source
from kilonova.operations.create.networks import ATTACH_EXTERNAL
from kilonova.operations.in_cell0.retry import rebuild_unplaced, request_of
from kilonova.store.open_stores import CELL0
from kilonova.store.server_records import ServerRecord

SINCE: Version = (2, 105)


def is_unplaced(call: Call, record: ServerRecord) -> bool:
    return record.cell == CELL0 and call.at(*SINCE)


async def retry(call: Call, record: ServerRecord, details: JsonObject, password: str) -> Accepted:
    return await rebuild_unplaced(
        call.engine,
        Ask(
            kind="rebuild",
            server_id=record.id,
            cause=call.cause,
            params=await rebuild_params(call, record, call.body["rebuild"], details),
            secrets={"admin_pass": password},
            key=idempotency_key(call),
        ),
    )


async def rebuild_params(call: Call, record: ServerRecord, request: JsonObject, details: JsonObject) -> dict[str, Json]:
    """Return the parameters of the operation after checking everything that the server needs. `request` is the body."""
    owner = owner_of(call.caller, record)
    spec = json_object((await request_of(call.engine, record.id))["spec"])
    volumes = [msgspec.convert(one, WantedVolume) for one in as_list(spec.get("volumes"))]
    root = next((one for one in volumes if one.is_root), None)
    if root is None:
        changed = await _from_image(call, record, as_text(request["imageRef"]))
    else:
        changed = await _from_volume(call, root, request)
    await _check_networks(call, owner, spec)
    await _check_volumes(call, owner, volumes)
    params: dict[str, Json] = {**changed, "details": {**details, **as_object(changed.get("details"))}}
    if "name" in request:
        params["name"] = request["name"]
    return params


async def _from_image(call: Call, record: ServerRecord, image_id: str) -> JsonObject:
    """Return the new image's parameters. The server has no guest yet, so the image may require other hardware."""
    image = await find_image(call.requester, image_id)
    check_fit(call.requester, record.flavor, image)
    about = image_details(image)
    flavor = msgspec.to_builtins(with_hardware(call.requester, record.flavor, image))
    return {"image": image.id, "flavor": flavor, "details": about}


async def _from_volume(call: Call, root: WantedVolume, request: JsonObject) -> JsonObject:
    """Check the root volume. Its content is not touched, and the server names no image."""
    if request.get("trusted_image_certificates"):
        raise Refused(400, "Image certificate validation is not supported when booting from volume")
    if request["imageRef"] != await _image_of(call, root):
        text = f"Unable to rebuild with a different image for a volume-backed server: not {request['imageRef']}"
        raise Refused(400, text)
    return {}


async def _image_of(call: Call, root: WantedVolume) -> str:
    volumes, volume_id = call.service.volumes, root.volume_id
    if root.image_id:
        return root.image_id
    try:
        if root.snapshot_id:
            volume_id = (await volumes.snapshots.find(call.caller, root.snapshot_id)).volume_id
        return (await volumes.servers.state(volume_id)).image_metadata.get("image_id", "")
    except Refused as why:
        raise wrong_source(why) from None


async def _check_networks(call: Call, owner: Caller, spec: JsonObject) -> None:
    networks = [msgspec.convert(one, WantedPort) for one in as_list(spec.get("networks"))]
    if networks:
        await call.service.networks.choose(owner, networks, external=call.allows(ATTACH_EXTERNAL))
    groups = [as_text(group) for group in as_list(spec.get("security_groups"))]
    if groups:
        await call.service.networks.check_security_groups(owner, groups, may_make=False)


async def _check_volumes(call: Call, owner: Caller, volumes: list[WantedVolume]) -> None:
    for one in volumes:
        try:
            if one.volume_id:
                await call.service.volumes.servers.check(owner, one.volume_id)
            elif one.snapshot_id:
                await call.service.volumes.snapshots.find(owner, one.snapshot_id)
            elif one.image_id:
                await find_image(call.requester, one.image_id)
        except Refused as why:
            raise wrong_source(why) from None
