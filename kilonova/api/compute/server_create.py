"""POST /servers: read the request, let operations/create check and accept it, and answer."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.passwords import shown_password
from kilonova.api.compute.repeating import idempotency_key
from kilonova.api.compute.server_create_body import read
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.engine.accept import IdempotencyKey
from kilonova.operations.create.accept import create_many, known_creates
from kilonova.operations.create.devices import wrong
from kilonova.operations.create.request import ServerRequest, check
from kilonova.store.server_records import find

VOLUME_GONE = ("invalid_volume", "volume_not_found")  # another request was faster


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
