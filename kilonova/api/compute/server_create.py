"""POST /servers: read the request, let operations/create check and accept it, and answer."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.repeating import idempotency_key, random_text
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.json import Json, as_text
from kilonova.engine.accept import IdempotencyKey
from kilonova.operations.create.accept import create_many, known_creates
from kilonova.operations.create.devices import wrong
from kilonova.operations.create.request import ServerRequest, check
from kilonova.store.server_records import find

PASSWORD_LENGTH = 12
VOLUME_GONE = ("invalid_volume", "volume_not_found")  # another request was faster
HINTS = ("os:scheduler_hints", "OS-SCH-HNT:scheduler_hints")


class Created(msgspec.Struct, frozen=True):
    servers: list[str]  # ids
    operation: str
    details: Details  # of the first


async def create(call: Call) -> Response:
    request = read(call)
    return _answer(call, request, await accept(call, request, idempotency_key(call)))


async def accept(call: Call, request: ServerRequest, key: IdempotencyKey | None) -> Created:
    """Check the request and store its servers, or find those that the same request with the same key made."""
    if (before := await _made_before(call, key)) is not None:
        return before
    checked = await check(call.requester, request)
    try:
        creates = await create_many(call.engine, checked.servers, call.cause, key)
    except Refused as why:
        raise wrong(why.message) if why.code in VOLUME_GONE else why from None
    return Created([server for server, _ in creates], creates[0][1].operation_id, checked.details)


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


async def _made_before(call: Call, key: IdempotencyKey | None) -> Created | None:
    """Find what the same request with the same key made. It is answered before anything is checked: what it made may
    use up the room that a second one would need."""
    creates = await known_creates(call.engine, key, call.cause) if key is not None else []
    if not creates:
        return None
    record = await find(call.db, creates[0][0], deleted=True)
    details = Details() if record is None else record.details
    return Created([server for server, _ in creates], creates[0][1].operation_id, details)


def _answer(call: Call, request: ServerRequest, created: Created) -> Response:
    headers, details, server = {OPERATION_HEADER: created.operation}, created.details, created.servers[0]
    if is_true(call.body["server"].get("return_reservation_id", False)):
        return answer({"reservation_id": details.reservation_id}, 202, headers)
    href = call.url(f"/servers/{server}")
    attributes = {
        "id": server,
        "links": [
            {"rel": "self", "href": href},
            {"rel": "bookmark", "href": f"{call.service.public_url}/compute/servers/{server}"},
        ],
        "OS-DCF:diskConfig": details.disk_config,
        "security_groups": [{"name": name} for name in (request.security_groups or ["default"])],
        **shown_password(call, request.password),
    }
    return answer({"server": attributes}, 202, {**headers, "Location": href})


def shown_password(call: Call, password: str) -> dict[str, str]:
    """Return the password for the response, or nothing: it would mislead if guests do not take the password."""
    return {"adminPass": password} if call.settings.api.enable_instance_password else {}


def new_password(call: Call) -> str:
    """Return a password in Nova's alphabet: no two characters look alike."""
    return random_text(call, "password", "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", PASSWORD_LENGTH)
