"""/volumes: create, list, show, change, delete."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.collection import OWNED_FILTERS, OwnedCollection
from kilonova.api.volume.query import (
    ListOptions,
    QueryFilter,
    flag,
    is_requested,
    moments,
    number,
    pairs,
    text,
    viewer_of,
)
from kilonova.api.volume.volume_create import new_volume
from kilonova.api.volume.volume_view import detail, made, summary
from kilonova.services.volume.volume import IMAGE, USER, Volume
from kilonova.services.volume.volumes import VolumeRecords

OPTIONS = ListOptions(
    filters={
        **OWNED_FILTERS,
        "metadata": QueryFilter(USER, pairs),
        "glance_metadata": QueryFilter(IMAGE, pairs, since=(3, 4)),
        "bootable": QueryFilter("bootable", flag),
        "multiattach": QueryFilter("multiattach", flag),
        "migration_status": QueryFilter("migration_status", text),
        "availability_zone": QueryFilter("zone", text),
        "size": QueryFilter("size", number),
        "created_at": QueryFilter("created_at", moments, since=(3, 60)),
        "updated_at": QueryFilter("updated_at", moments, since=(3, 60)),
        "snapshot_id": QueryFilter("snapshot_id", text, admin=True),
        "source_volid": QueryFilter("source_id", text, admin=True),
        "volume_type_id": QueryFilter("type_id", text, admin=True),
    },
    orders={
        **{name: name for name in ("id", "name", "status", "size", "bootable", "created_at", "updated_at")},
        **{"display_name": "name", "availability_zone": "zone", "project_id": "project_id", "user_id": "user_id"},
    },
)


class VolumeCollection(OwnedCollection[Volume]):
    body_key, options = "volume", OPTIONS
    summary, made, detail = staticmethod(summary), staticmethod(made), staticmethod(detail)

    def records(self, call: Call) -> VolumeRecords:
        return call.service.volumes.volumes

    async def add(self, call: Call) -> Volume:
        return await self.records(call).create(call.caller, await new_volume(call))

    async def drop(self, call: Call, record: Volume) -> None:
        cascade = is_requested(call, "cascade")
        force = call.at(3, 23) and is_requested(call, "force")
        if force:
            call.require("volume:force_delete", project_id=record.project_id)
        await self.records(call).delete(call.caller, record.id, force=force, cascade=cascade)


async def totals(call: Call) -> Response:
    """Show the number and the total size of volumes."""
    count, size, metadata = await call.service.volumes.volumes.summary(viewer_of(call))
    view: dict[str, Content] = {"total_count": count, "total_size": size}
    if call.at(3, 36):
        view["metadata"] = metadata
    return answer({"volume-summary": view})


async def encryption(call: Call) -> Response:
    """Show the encryption of a volume: there is none."""
    await volume_of(call)
    return answer({"encryption_key_id": None})


VOLUMES = VolumeCollection()
volume_of = VOLUMES.find
ROUTES = [
    *VOLUMES.routes("", forms.CREATE, forms.UPDATE),
    Route(method="GET", path="/volumes/summary", handler=totals, rule="volume:get_all", since=(3, 12)),
    Route(
        method="GET",
        path="/volumes/{volume}/encryption",
        handler=encryption,
        rule="volume_extension:volume_encryption_metadata",
    ),
]
