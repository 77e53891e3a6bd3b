"""A volume as the API shows it, in each version and to each caller."""

from __future__ import annotations

from datetime import UTC, datetime

from kilonova.api.call import Call
from kilonova.api.content import Content
from kilonova.api.volume.query import as_requested
from kilonova.services.volume.backends import pool_of
from kilonova.services.volume.volume import ATTACHED, Volume

EXTENSION = "volume_extension:"


def time_text(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")[:26]


def summary(call: Call, volume: Volume) -> dict[str, Content]:
    return {"id": volume.id, "name": volume.name, "links": _links(call, volume.id)}


def detail(call: Call, volume: Volume) -> dict[str, Content]:
    return made(call, volume) | _extended(call, volume)


def made(call: Call, volume: Volume) -> dict[str, Content]:
    """Return the attributes that create and update show, not all of them."""
    view: dict[str, Content] = {
        "id": volume.id,
        "status": volume.status,
        "size": volume.size,
        "availability_zone": volume.zone,
        "created_at": time_text(volume.created_at),
        "updated_at": time_text(volume.updated_at),
        "name": volume.name,
        "description": volume.description,
        "volume_type": volume.type_name,
        "snapshot_id": volume.snapshot_id,
        "source_volid": volume.source_id,
        "metadata": volume.metadata | _set_by_others(volume),
        "links": _links(call, volume.id),
        "user_id": volume.user_id,
        "bootable": str(volume.bootable).lower(),
        "encrypted": False,
        "replication_status": None,
        "consistencygroup_id": None,
        "multiattach": volume.multiattach,
        "attachments": _attachments(call, volume),
    }
    return view | _since(call, volume)


def _set_by_others(volume: Volume) -> dict[str, str]:
    """Return the values shown among the owner's metadata that the owner did not set."""
    modes = [one.mode for one in volume.attachments if one.status == ATTACHED]
    metadata = {"attached_mode": modes[0]} if modes else {}
    return metadata if volume.readonly is None else metadata | {"readonly": str(volume.readonly)}


def _attachments(call: Call, volume: Volume) -> list[dict[str, Content]]:
    knows_hosts = call.caller.is_admin or "service" in call.caller.roles
    return [
        {
            "id": volume.id,
            "attachment_id": one.id,
            "volume_id": volume.id,
            "server_id": one.server_id,
            "host_name": one.host if knows_hosts else None,
            "device": one.device,
            "attached_at": time_text(one.attached_at),
        }
        for one in volume.attachments
        if one.status == ATTACHED
    ]


def _extended(call: Call, volume: Volume) -> dict[str, Content]:
    """Return the attributes that need a right of their own."""
    view: dict[str, Content] = {}
    target = volume.project_id
    if call.allows(f"{EXTENSION}volume_host_attribute", project_id=target):
        view["os-vol-host-attr:host"] = pool_of(volume.backend)
    if call.allows(f"{EXTENSION}volume_tenant_attribute", project_id=target):
        view["os-vol-tenant-attr:tenant_id"] = volume.project_id
    if call.allows(f"{EXTENSION}volume_mig_status_attribute", project_id=target):
        view |= {"os-vol-mig-status-attr:migstat": volume.migration_status, "os-vol-mig-status-attr:name_id": None}
    if volume.image_metadata and call.allows(f"{EXTENSION}volume_image_metadata:show", project_id=target):
        view["volume_image_metadata"] = volume.image_metadata
    return view


def _since(call: Call, volume: Volume) -> dict[str, Content]:
    view: dict[str, Content] = {"migration_status": volume.migration_status} if call.caller.is_admin else {}
    if call.at(3, 13):
        view["group_id"] = None
    if call.at(3, 21) and call.caller.is_admin:
        view["provider_id"] = None
    if call.at(3, 48):
        view |= {"shared_targets": False, "service_uuid": volume.backend}
    if call.at(3, 61) and call.caller.is_admin:
        view["cluster_name"] = None
    if call.at(3, 63):
        view["volume_type_id"] = volume.type_id
    if call.at(3, 65):
        view["consumes_quota"] = True
    return view


def _links(call: Call, volume_id: str) -> list[dict[str, str]]:
    path = f"{as_requested(call)}/volumes/{volume_id}"
    return [
        {"rel": "self", "href": call.url(path)},
        {"rel": "bookmark", "href": f"{call.service.public_url}/volume{path}"},
    ]
