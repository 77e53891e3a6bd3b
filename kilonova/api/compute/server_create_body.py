"""The body of POST /servers in the caller's microversion. POST /kilonova/v1/operations and /plans take the same."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Literal

import msgspec

from kilonova.api.call import Call
from kilonova.api.compute.passwords import new_password
from kilonova.api.compute.repeating import random_text
from kilonova.domain.flags import is_true
from kilonova.domain.json import Json, as_text
from kilonova.operations.create.request import ServerRequest

HINTS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")


class NewServerBody(msgspec.Struct, kw_only=True):
    """The body, after its schema was checked: numbers may be strings, and yes and no words."""

    name: str
    flavor: int | float | str = msgspec.field(name="flavorRef")
    image: str = msgspec.field(name="imageRef", default="")
    min_count: int | float | str = 1
    max_count: int | float | str | None = None
    zone: str = msgspec.field(name="availability_zone", default="")
    host: str = ""
    hypervisor_hostname: str = ""
    networks: Literal["auto", "none"] | list[dict[str, str | None]] | None = None
    security_groups: list[dict[str, str]] = []
    old_devices: list[dict[str, Json]] = msgspec.field(name="block_device_mapping", default_factory=list)
    devices: list[dict[str, Json]] = msgspec.field(name="block_device_mapping_v2", default_factory=list)
    key_name: str | None = None
    user_data: str | None = None
    files: list[Mapping[str, str]] = msgspec.field(name="personality", default_factory=list)
    config_drive: bool | str = False
    password: str = msgspec.field(name="adminPass", default="")
    metadata: dict[str, str] = {}
    tags: list[str] = []
    description: str | None = None
    hostname: str = ""
    disk_config: str = msgspec.field(name="OS-DCF:diskConfig", default="MANUAL")
    access_ip_v4: str = msgspec.field(name="accessIPv4", default="")
    access_ip_v6: str | None = msgspec.field(name="accessIPv6", default=None)
    certificates: list[str] | None = msgspec.field(name="trusted_image_certificates", default=None)


def read(call: Call) -> ServerRequest:
    """Read the body in the caller's microversion; its schema was checked before."""
    body = msgspec.convert(call.body["server"], NewServerBody)
    hints: dict[str, Json] = next((scheduler_hints for name in HINTS if (scheduler_hints := call.body.get(name))), {})
    least = int(body.min_count)
    return ServerRequest(
        name=body.name,
        flavor=str(body.flavor),
        image=body.image,
        least=least,
        most=least if body.max_count is None else int(body.max_count),
        zone=body.zone,
        hosts=[name for name in (body.host, body.hypervisor_hostname) if name],
        networks=body.networks,
        security_groups=[group["name"] for group in body.security_groups if "name" in group],
        server_group=as_text(hints.get("group")) or None,
        hints=hints,
        old_devices=body.old_devices,
        devices=body.devices,
        multiattach=call.at(2, 60),
        key_name=body.key_name,
        user_data=body.user_data,
        files=body.files,
        config_drive=is_true(body.config_drive),
        password=body.password or new_password(call),
        metadata=body.metadata,
        tags=body.tags,
        description=body.description if call.at(2, 19) else body.name,
        hostname=body.hostname,
        disk_config=body.disk_config,
        access_ip_v4=body.access_ip_v4,
        access_ip_v6=body.access_ip_v6,
        certificates=body.certificates,
        reservation_id=f"r-{random_text(call, 'reservation', string.ascii_lowercase + string.digits, 8)}",
    )
