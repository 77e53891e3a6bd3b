"""POST /servers: read the request, let operations/create check and accept it, and answer."""

from __future__ import annotations

import string
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.repeating import idempotency_key, random_text
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.words import is_true
from kilonova.engine.accept import IdempotencyKey
from kilonova.operations.create.accept import create_many, known_creates
from kilonova.operations.create.devices import wrong
from kilonova.operations.create.request import ServerRequest, check
from kilonova.store.server_records import find

PASSWORD_LENGTH = 12
VOLUME_GONE = ("invalid_volume", "volume_not_found")  # somebody else was faster
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
        made = await create_many(call.engine, checked.servers, call.cause, key)
    except Refused as why:
        raise wrong(why.message) if why.code in VOLUME_GONE else why from None
    return Created([server for server, _ in made], made[0][1].operation_id, checked.details)


def read(call: Call) -> ServerRequest:
    """Read the body in the caller's microversion; its schema was checked before."""
    body: dict[str, Any] = call.body["server"]
    hints: dict[str, Any] = next((found for name in HINTS if (found := call.body.get(name))), {})
    least = int(body.get("min_count", 1))
    return ServerRequest(
        name=body["name"],
        flavor=str(body["flavorRef"]),
        image=body.get("imageRef", ""),
        least=least,
        most=int(body.get("max_count", least)),
        zone=body.get("availability_zone", ""),
        hosts=[name for key in ("host", "hypervisor_hostname") if (name := body.get(key))],
        networks=body.get("networks"),
        security_groups=[group["name"] for group in body.get("security_groups", []) if "name" in group],
        server_group=hints.get("group"),
        hints=hints,
        old_devices=body.get("block_device_mapping") or [],
        devices=body.get("block_device_mapping_v2") or [],
        multiattach=call.at(2, 60),
        key_name=body.get("key_name"),
        user_data=body.get("user_data"),
        files=body.get("personality", []),
        config_drive=is_true(body.get("config_drive") or False),
        password=body.get("adminPass") or new_password(call),
        metadata=body.get("metadata", {}),
        tags=body.get("tags", []),
        description=body.get("description") if call.at(2, 19) else body["name"],
        hostname=body.get("hostname") or "",
        disk_config=body.get("OS-DCF:diskConfig", "MANUAL"),
        access_ip_v4=body.get("accessIPv4", ""),
        access_ip_v6=body.get("accessIPv6"),
        certificates=body.get("trusted_image_certificates"),
        reservation_id=f"r-{random_text(call, 'reservation', string.ascii_lowercase + string.digits, 8)}",
    )


async def _made_before(call: Call, key: IdempotencyKey | None) -> Created | None:
    """Find what the same request with the same key made. It is answered before anything is checked: what it made may
    use up the room that a second one would need."""
    made = await known_creates(call.engine, key, call.cause) if key is not None else []
    if not made:
        return None
    record = await find(call.db, made[0][0], deleted=True)
    details = Details() if record is None else record.details
    return Created([server for server, _ in made], made[0][1].operation_id, details)


def _answer(call: Call, request: ServerRequest, created: Created) -> Response:
    headers, details, server = {OPERATION_HEADER: created.operation}, created.details, created.servers[0]
    if is_true(call.body["server"].get("return_reservation_id", False)):
        return answer({"reservation_id": details.reservation_id}, 202, headers)
    href = call.url(f"/servers/{server}")
    shown = {
        "id": server,
        "links": [
            {"rel": "self", "href": href},
            {"rel": "bookmark", "href": f"{call.service.public_url}/compute/servers/{server}"},
        ],
        "OS-DCF:diskConfig": details.disk_config,
        "security_groups": [{"name": name} for name in (request.security_groups or ["default"])],
        **shown_password(call, request.password),
    }
    return answer({"server": shown}, 202, {**headers, "Location": href})


def shown_password(call: Call, password: str) -> dict[str, str]:
    """Return the password for the response, or nothing: it would mislead if guests do not take the password."""
    return {"adminPass": password} if call.settings.api.enable_instance_password else {}


def new_password(call: Call) -> str:
    """Return a password in Nova's alphabet: no two characters look alike."""
    return random_text(call, "password", "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", PASSWORD_LENGTH)
