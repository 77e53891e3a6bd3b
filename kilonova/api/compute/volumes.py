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
from kilonova.domain.words import is_true
from kilonova.records.query import ListQuery
from kilonova.services.volume.creating import NewVolume
from kilonova.services.volume.volume import ATTACHED, Snapshot, Volume

RULE = "os_compute_api:os-volumes:"


async def list_volumes(call: Call) -> Response:
    found, _ = await call.service.volumes.volumes.list_(*_page(call))
    return answer({"volumes": [_volume(one) for one in found]})


async def show_volume(call: Call) -> Response:
    return answer({"volume": _volume(await call.service.volumes.volumes.find(call.caller, call.path["volume"]))})


async def create_volume(call: Call) -> Response:
    wish = call.body["volume"]
    new = NewVolume(
        size=int(wish["size"]),
        name=wish.get("display_name"),
        description=wish.get("display_description"),
        type=wish.get("volume_type", ""),
        zone=wish.get("availability_zone", ""),
        metadata=wish.get("metadata", {}),
        snapshot_id=wish.get("snapshot_id", ""),
    )
    made = await call.service.volumes.volumes.create(call.caller, new)
    return answer({"volume": _volume(made)}, headers=call.location("os-volumes", made.id))


async def delete_volume(call: Call) -> Response:
    await call.service.volumes.volumes.delete(call.caller, call.path["volume"])
    return nothing(202)


async def list_snapshots(call: Call) -> Response:
    found, _ = await call.service.volumes.snapshots.list_(*_page(call))
    return answer({"snapshots": [_snapshot(one) for one in found]})


async def show_snapshot(call: Call) -> Response:
    found = await call.service.volumes.snapshots.find(call.caller, call.path["snapshot"])
    return answer({"snapshot": _snapshot(found)})


async def create_snapshot(call: Call) -> Response:
    wish = call.body["snapshot"]
    made = await call.service.volumes.snapshots.create(
        call.caller,
        wish["volume_id"],
        in_use=is_true(wish.get("force", False)),
        metadata={},
        name=wish.get("display_name"),
        description=wish.get("display_description"),
    )
    return answer({"snapshot": _snapshot(made)})


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
