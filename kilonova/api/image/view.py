"""Images and members as Glance shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from kilonova.api.content import Content
from kilonova.services.image.image import Image, Member

SCHEMA, LIST_SCHEMA = "/v2/schemas/image", "/v2/schemas/images"
MEMBER_SCHEMA, MEMBERS_SCHEMA = "/v2/schemas/member", "/v2/schemas/members"


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def image_view(image: Image) -> dict[str, Content]:
    """Return an image as a response shows it. A property cannot replace an attribute of the same name."""
    return {
        **image.properties,
        "id": image.id,
        "name": image.name,
        "status": image.status,
        "visibility": image.visibility,
        "owner": image.owner,
        "protected": image.protected,
        "os_hidden": image.hidden,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
        "container_format": image.container_format,
        "disk_format": image.disk_format,
        "size": image.size,
        "virtual_size": image.virtual_size,
        "checksum": image.checksum,
        "os_hash_algo": image.hash_algorithm,
        "os_hash_value": image.hash_value,
        "created_at": time_of(image.created_at),
        "updated_at": time_of(image.updated_at),
        "tags": image.tags,
        "self": f"/v2/images/{image.id}",
        "file": f"/v2/images/{image.id}/file",
        "schema": SCHEMA,
    }


def member_view(member: Member) -> dict[str, Content]:
    return {
        "member_id": member.member_id,
        "image_id": member.image_id,
        "status": member.status,
        "created_at": time_of(member.created_at),
        "updated_at": time_of(member.updated_at),
        "schema": MEMBER_SCHEMA,
    }
