"""/os-volumes and /os-snapshots until 2.35: Volume's things in the words of the time when Compute had them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.paging import limit_of
from kilonova.api.compute.schemas import volumes as schemas
from kilonova.api.compute.server_view import microseconds
from kilonova.api.content import Content
from kilonova.api.forms import Forms
from kilonova.api.routes import Handler, Route
from kilonova.domain.flags import is_true
from kilonova.records.query import ListQuery
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.volume import ATTACHED, Snapshot, Volume

RULE = "os_compute_api:os-volumes:"


async def list_volumes(call: Call) -> Response:
    volumes, _ = await call.service.volumes.volumes.list_(*_page(call))
    return answer({"volumes": [_volume(one) for one in volumes]})


async def show_volume(call: Call) -> Response:
    return answer({"volume": _volume(await call.service.volumes.volumes.find(call.caller, call.path["volume"]))})


async def create_volume(call: Call) -> Response:
    request = call.body["volume"]
    new = NewVolume(
        size=int(request["size"]),
        name=request.get("display_name"),
        description=request.get("display_description"),
        type=request.get("volume_type", ""),
        zone=request.get("availability_zone", ""),
        metadata=request.get("metadata", {}),
        snapshot_id=request.get("snapshot_id", ""),
    )
    volume = await call.service.volumes.volumes.create(call.caller, new)
    return answer({"volume": _volume(volume)}, headers=call.location("os-volumes", volume.id))


async def delete_volume(call: Call) -> Response:
    await call.service.volumes.volumes.delete(call.caller, call.path["volume"])
    return nothing(202)


async def list_snapshots(call: Call) -> Response:
    snapshots, _ = await call.service.volumes.snapshots.list_(*_page(call))
    return answer({"snapshots": [_snapshot(one) for one in snapshots]})


async def show_snapshot(call: Call) -> Response:
    snapshot = await call.service.volumes.snapshots.find(call.caller, call.path["snapshot"])
    return answer({"snapshot": _snapshot(snapshot)})


async def create_snapshot(call: Call) -> Response:
    request = call.body["snapshot"]
    snapshot = await call.service.volumes.snapshots.create(
        call.caller,
        request["volume_id"],
        in_use=is_true(request.get("force", False)),
        metadata={},
        name=request.get("display_name"),
        description=request.get("display_description"),
    )
    return answer({"snapshot": _snapshot(snapshot)})


async def delete_snapshot(call: Call) -> Response:
    await call.service.volumes.snapshots.delete(call.caller, call.path["snapshot"])
    return nothing(202)


def _page(call: Call) -> tuple[str, ListQuery]:
    """Return a page of the caller's own project, also for an administrator."""
    return call.caller.project_id, ListQuery(limit=limit_of(call), offset=int(call.query.get("offset", 0)))


def _volume(volume: Volume) -> dict[str, Content]:
    return {
        "id": volume.id,
        "status": volume.status,
        "size": volume.size,
        "availabilityZone": volume.zone,
        "createdAt": microseconds(volume.created_at),
        "attachments": [_attachment(volume)],
        "displayName": volume.name,
        "displayDescription": volume.description,
        "volumeType": volume.type_name,
        "snapshotId": volume.snapshot_id,
        "metadata": volume.metadata,
    }


def _attachment(volume: Volume) -> dict[str, Content]:
    """Return the first attachment, or an empty one: this old API knows one server per volume."""
    for one in volume.attachments:
        if one.status == ATTACHED:
            device = {"device": one.device} if one.device else {}
            return {"id": volume.id, "volumeId": volume.id, "serverId": one.server_id, **device}
    return {}


def _snapshot(snapshot: Snapshot) -> dict[str, Content]:
    return {
        "id": snapshot.id,
        "volumeId": snapshot.volume_id,
        "status": snapshot.status,
        "size": snapshot.size,
        "createdAt": microseconds(snapshot.created_at),
        "displayName": snapshot.name,
        "displayDescription": snapshot.description,
    }


def _until_2_35(
    method: str, path: str, handler: Handler, rule: str, *, query: Forms | None = None, body: Forms | None = None
) -> Route:
    last = (2, 35)
    return Route(method=method, path=path, handler=handler, rule=RULE + rule, until=last, query=query, body=body)


ROUTES = [
    _until_2_35("GET", "/os-volumes", list_volumes, "list", query=schemas.LIST),
    _until_2_35("POST", "/os-volumes", create_volume, "create", body=schemas.VOLUME),
    _until_2_35("GET", "/os-volumes/detail", list_volumes, "detail", query=schemas.LIST),
    _until_2_35("GET", "/os-volumes/{volume}", show_volume, "show"),
    _until_2_35("DELETE", "/os-volumes/{volume}", delete_volume, "delete"),
    _until_2_35("GET", "/os-snapshots", list_snapshots, "snapshots:list", query=schemas.LIST),
    _until_2_35("POST", "/os-snapshots", create_snapshot, "snapshots:create", body=schemas.SNAPSHOT),
    _until_2_35("GET", "/os-snapshots/detail", list_snapshots, "snapshots:detail", query=schemas.LIST),
    _until_2_35("GET", "/os-snapshots/{snapshot}", show_snapshot, "snapshots:show"),
    _until_2_35("DELETE", "/os-snapshots/{snapshot}", delete_snapshot, "snapshots:delete"),
]
