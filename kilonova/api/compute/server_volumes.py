"""/servers/{server}/os-volume_attachments: the volumes of a server."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer, nothing
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.api.compute.schemas import server_volumes as schemas
from kilonova.api.compute.server import act, check_unlocked, owner_of, server_of
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.json import Json, JsonObject
from kilonova.domain.volume import ServerVolume
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.operations.create.destination import check_zone_of_volume
from kilonova.operations.steps.volumes import record_volumes
from kilonova.store.server_records import ServerRecord
from kilonova.world import Tx

RULE = "os_compute_api:os-volumes-attachments:"
SWAP = f"{RULE}swap"
QUEUED = ("attach_volume", "detach_volume")
PATIENCE = 50  # looks, a tenth of a second apart, while the server is busy with another volume


async def list_(call: Call) -> Response:
    record = await server_of(call)
    offset, limit = int(call.query.get("offset", 0)), call.query.get("limit")
    volumes = record.volumes[offset:] if limit is None else record.volumes[offset : offset + int(limit)]
    return answer({"volumeAttachments": [view(call, record, one) for one in volumes]})


async def show(call: Call) -> Response:
    record = await server_of(call)
    return answer({schemas.KEY: view(call, record, _its(record, call.path["volume"]))})


async def attach(call: Call) -> Response:
    request = call.body[schemas.KEY]
    volume_id = request["volumeId"]
    operation = await repeated(call)
    if operation is None:
        record = await server_of(call)
        check_unlocked(call, record)
        await _check_volume(call, record, volume_id)
        operation = (await queue(call.engine, _ask(call, record, request))).operation_id
    headers = {OPERATION_HEADER: operation}
    if call.at(2, 101):
        return nothing(202, headers)
    return answer({schemas.KEY: _attaching(call, await server_of(call), request)}, 200, headers)


async def swap(call: Call) -> Response:
    """Refuse to swap a volume. Only the volume service may request that, to migrate a volume; ours migrates none."""
    record, volume_id = await server_of(call, rule=SWAP), call.path["volume"]
    _its(record, volume_id)
    text = f"volume {volume_id} is not migrating; this API should only be called by Cinder."
    raise Refused(409, f"{text} Detach it and attach {call.body[schemas.KEY]['volumeId']}.")


async def update(call: Call) -> Response:
    """Set whether the volume is deleted with the server."""
    request, volume_id = call.body[schemas.KEY], call.path["volume"]
    if request["volumeId"] != volume_id:
        return await swap(call)
    record = await server_of(call)
    one = _its(record, volume_id)
    fixed = {"device": one.device, "tag": one.tag, "serverId": record.id, "id": volume_id}
    for name, value in fixed.items():
        if request.get(name, value) != value:
            raise Refused(400, f"The {name} of a volume attachment cannot be changed; it is {value}.")
    check_unlocked(call, record)
    if "delete_on_termination" in request:
        await _decide(call, record, volume_id, is_true(request["delete_on_termination"]))
    return nothing(202)


async def detach(call: Call) -> Response:
    return await act(call, "detach_volume", by=queue, volume_id=call.path["volume"])


async def queue(engine: Engine, ask: Ask) -> Accepted:
    """Queue a request while the server attaches or detaches another volume; clients expect concurrent ones to work."""
    for _ in range(PATIENCE):
        try:
            return await submit(engine, ask)
        except Refused as why:
            if why.code != "busy" or why.details.get("kind") not in QUEUED:
                raise
        await engine.world.clock.sleep(0.1)
    return await submit(engine, ask)


def view(call: Call, record: ServerRecord, one: ServerVolume) -> dict[str, Content]:
    attributes: dict[str, Content] = {"serverId": record.id, "volumeId": one.volume_id, "device": one.device}
    if call.at(2, 89):
        attributes |= {"attachment_id": one.attachment_id or None, "bdm_uuid": one.id}
    else:
        attributes["id"] = one.volume_id
    return attributes | _by_version(call, one.tag, one.delete_on_termination)


def _attaching(call: Call, record: ServerRecord, request: JsonObject) -> dict[str, Content]:
    """Return the accepted attachment. It has its old shape in every version; the device is known from the start."""
    there = next((one for one in record.volumes if one.volume_id == request["volumeId"]), None)
    device = request.get("device") if there is None else there.device
    attributes = {"id": request["volumeId"], "serverId": record.id, "volumeId": request["volumeId"], "device": device}
    return {**attributes, **_by_version(call, request.get("tag"), is_true(request.get("delete_on_termination", False)))}


def _by_version(call: Call, tag: Json, fate: bool) -> dict[str, Content]:
    attributes: dict[str, Content] = {"tag": tag} if call.at(2, 70) else {}
    return attributes | {"delete_on_termination": fate} if call.at(2, 79) else attributes


def _ask(call: Call, record: ServerRecord, request: JsonObject) -> Ask:
    params = {
        "id": call.engine.world.ids.uuid(),
        "volume_id": request["volumeId"],
        "device": request.get("device"),
        "tag": request.get("tag"),
        "delete_on_termination": is_true(request.get("delete_on_termination", False)),
    }
    return Ask(kind="attach_volume", server_id=record.id, cause=call.cause, params=params, key=idempotency_key(call))


async def _check_volume(call: Call, record: ServerRecord, volume_id: str) -> None:
    """Check that the volume belongs to the server's project and is free. Reserving it checks both again."""
    if any(one.volume_id == volume_id for one in record.volumes):
        raise Refused(400, f"Invalid volume: Volume {volume_id} is already attached to {record.id}.")
    state = await call.service.volumes.servers.check(owner_of(call.caller, record), volume_id)
    if record.host is not None:
        check_zone_of_volume(call.requester, (await call.service.zones.sync()).zone_of(record.host), state.zone)
    if state.multiattach and not call.at(2, 60):
        raise Refused(400, f"Volume {volume_id} is multiattach; attaching it needs microversion 2.60.")


async def _decide(call: Call, record: ServerRecord, volume_id: str, fate: bool) -> None:
    """Write whether the volume is deleted with the server: into the server's row, which decides at a delete."""
    assert record.cell is not None

    def become(there: list[ServerVolume]) -> list[ServerVolume]:
        return [replace(one, delete_on_termination=fate) if one.volume_id == volume_id else one for one in there]

    async def body(tx: Tx) -> None:
        await record_volumes(tx, record.id, become)

    await call.engine.write(call.db.cell(record.cell), body)


def _its(record: ServerRecord, volume_id: str) -> ServerVolume:
    for one in record.volumes:
        if one.volume_id == volume_id:
            return one
    raise Refused(404, f"Instance {record.id} is not attached to volume {volume_id[:36]}.")


ALL, ONE = "/servers/{server}/os-volume_attachments", "/servers/{server}/os-volume_attachments/{volume}"
ROUTES = [
    Route(method="GET", path=ALL, handler=list_, rule=f"{RULE}index", query=schemas.LIST),
    Route(method="POST", path=ALL, handler=attach, rule=f"{RULE}create", body=schemas.ATTACH),
    Route(method="GET", path=ONE, handler=show, rule=f"{RULE}show"),
    Route(method="PUT", path=ONE, handler=swap, rule=SWAP, until=(2, 84), body=schemas.SWAP),
    Route(method="PUT", path=ONE, handler=update, rule=f"{RULE}update", since=(2, 85), body=schemas.UPDATE),
    Route(method="DELETE", path=ONE, handler=detach, rule=f"{RULE}delete"),
]
