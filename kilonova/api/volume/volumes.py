"""/volumes: create, list, show, change, delete."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.query import (
    ListOptions,
    QueryFilter,
    flag,
    is_asked,
    listed,
    moments,
    number,
    pairs,
    text,
    viewer_of,
)
from kilonova.api.volume.volume_create import new_volume
from kilonova.api.volume.volume_view import detail, made, summary
from kilonova.api.volume.wishes import described
from kilonova.services.volume.volume import IMAGE, USER, Volume

RULE = "volume:"
LISTED = ListOptions(
    filters={
        "name": QueryFilter("name", text),
        "display_name": QueryFilter("name", text),
        "description": QueryFilter("description", text),
        "status": QueryFilter("status", text),
        "metadata": QueryFilter(USER, pairs),
        "glance_metadata": QueryFilter(IMAGE, pairs, since=(3, 4)),
        "bootable": QueryFilter("bootable", flag),
        "multiattach": QueryFilter("multiattach", flag),
        "migration_status": QueryFilter("migration_status", text),
        "availability_zone": QueryFilter("zone", text),
        "size": QueryFilter("size", number),
        "created_at": QueryFilter("created_at", moments, since=(3, 60)),
        "updated_at": QueryFilter("updated_at", moments, since=(3, 60)),
        "id": QueryFilter("id", text, admin=True),
        "project_id": QueryFilter("project_id", text, admin=True),
        "user_id": QueryFilter("user_id", text, admin=True),
        "snapshot_id": QueryFilter("snapshot_id", text, admin=True),
        "source_volid": QueryFilter("source_id", text, admin=True),
        "volume_type_id": QueryFilter("type_id", text, admin=True),
    },
    orders={
        **{name: name for name in ("id", "name", "status", "size", "bootable", "created_at", "updated_at")},
        **{"display_name": "name", "availability_zone": "zone", "project_id": "project_id", "user_id": "user_id"},
    },
)


async def volume_of(call: Call) -> Volume:
    """Return the volume in the path, if the caller may see it and the route's rule allows the request."""
    volume = await call.service.volumes.volumes.find(call.caller, call.path["volume"])
    call.require(project_id=volume.project_id)
    return volume


async def create(call: Call) -> Response:
    new = await new_volume(call)
    volume = await call.service.volumes.volumes.create(call.caller, new)
    return answer({"volume": made(call, volume)}, 202)


async def list_(call: Call) -> Response:
    return await listed(call, "/volumes", LISTED, call.service.volumes.volumes.list_, summary)


async def list_detail(call: Call) -> Response:
    return await listed(call, "/volumes/detail", LISTED, call.service.volumes.volumes.list_, detail)


async def totals(call: Call) -> Response:
    """Show the number and the total size of volumes."""
    count, size, metadata = await call.service.volumes.volumes.summary(viewer_of(call))
    shown: dict[str, Content] = {"total_count": count, "total_size": size}
    if call.at(3, 36):
        shown["metadata"] = metadata
    return answer({"volume-summary": shown})


async def show(call: Call) -> Response:
    return answer({"volume": detail(call, await volume_of(call))})


async def update(call: Call) -> Response:
    volume, wish = await volume_of(call), call.body["volume"]
    changed = await call.service.volumes.volumes.describe(call.caller, volume.id, described(wish), wish.get("metadata"))
    return answer({"volume": made(call, changed)})


async def delete(call: Call) -> Response:
    volume, cascade = await volume_of(call), is_asked(call, "cascade")
    force = call.at(3, 23) and is_asked(call, "force")
    if force:
        call.require(f"{RULE}force_delete", project_id=volume.project_id)
    await call.service.volumes.volumes.delete(call.caller, volume.id, force=force, cascade=cascade)
    return nothing(202)


async def encryption(call: Call) -> Response:
    """No volume is encrypted here."""
    await volume_of(call)
    return answer({"encryption_key_id": None})


VOLUME = "/volumes/{volume}"
ROUTES = [
    Route(method="POST", path="/volumes", handler=create, rule=f"{RULE}create", body=forms.CREATE),
    Route(method="GET", path="/volumes", handler=list_, rule=f"{RULE}get_all"),
    Route(method="GET", path="/volumes/detail", handler=list_detail, rule=f"{RULE}get_all"),
    Route(method="GET", path="/volumes/summary", handler=totals, rule=f"{RULE}get_all", since=(3, 12)),
    Route(method="GET", path=VOLUME, handler=show, rule=f"{RULE}get"),
    Route(method="PUT", path=VOLUME, handler=update, rule=f"{RULE}update", body=forms.UPDATE),
    Route(method="DELETE", path=VOLUME, handler=delete, rule=f"{RULE}delete"),
    Route(
        method="GET",
        path=f"{VOLUME}/encryption",
        handler=encryption,
        rule="volume_extension:volume_encryption_metadata",
    ),
]
