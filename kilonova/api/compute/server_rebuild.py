"""POST /servers/{server}/action rebuild: rebuild the server from an image, on its host. A server that never had a host
is scheduled again (server_unplaced.py)."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.passwords import new_password, shown_password
from kilonova.api.compute.rebuild_image import image_for, root_volume
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.api.compute.schemas import servers as schemas
from kilonova.api.compute.server import check_unlocked, look_at_ports, server_of
from kilonova.api.compute.server_unplaced import is_unplaced, retry
from kilonova.api.compute.server_view import ATTRIBUTES, ServerView, find_zones, groups_of
from kilonova.api.content import Content
from kilonova.api.routes import Route, Version
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.json import JsonObject, as_list, as_object, as_text
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.operations.checks.contents import check_files, check_user_data, find_key, seal_files, seal_user_data
from kilonova.operations.create.request import plain_address
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:servers:rebuild"
CERTIFICATES = f"{RULE}:trusted_certs"
REIMAGES: Version = (2, 93)  # the volume that a server boots from
NO_CERTIFICATES = "Image certificate validation is not supported when booting from volume"


async def rebuild(call: Call) -> Response:
    record, request = await server_of(call), call.body["rebuild"]
    password = request.get("adminPass") or new_password(call)
    if (again := await repeated(call)) is not None:
        return await _answer(call, record, password, again)
    check_unlocked(call, record)
    if is_unplaced(call, record):
        accepted = await retry(call, record, await _details(call, request), password)
        return await _answer(call, await server_of(call), password, accepted.operation_id)
    if request.get("trusted_image_certificates") and root_volume(record) is not None:
        raise Refused(400, NO_CERTIFICATES)
    operation, params = await image_for(call, record, request["imageRef"], reimages=call.at(*REIMAGES))
    await check_files(call.requester, request.get("personality", []))
    params["details"] = await _details(call, request)
    if is_true(request.get("preserve_ephemeral", False)):
        params["preserve_ephemeral"] = True
    if "name" in request:
        params["name"] = request["name"]
    ask = Ask(
        kind=operation,
        server_id=record.id,
        cause=call.cause,
        params=params,
        secrets={"admin_pass": password},
        key=idempotency_key(call),
    )
    accepted = await submit(call.engine, ask)
    return await _answer(call, await server_of(call), password, accepted.operation_id)


async def _answer(call: Call, record: ServerRecord, password: str, operation: str) -> Response:
    await look_at_ports(call, [record])
    await find_zones(call, [record])
    attributes = {**await _shown(call, record), **shown_password(call, password)}
    return answer({"server": attributes}, 202, {OPERATION_HEADER: operation})


async def _details(call: Call, request: JsonObject) -> JsonObject:
    """Return the attributes to change beside the image. An attribute that the request does not name stays as it is."""
    user_data, key_name = request.get("user_data"), as_text(request.get("key_name"))
    if user_data:
        check_user_data(as_text(user_data))
    if request.get("trusted_image_certificates"):
        call.require(CERTIFICATES)
    if "metadata" in request:
        await call.service.quotas.check_metadata(call.caller, len(as_object(request["metadata"])))
    names = {
        "metadata": "metadata",
        "description": "description",
        "key_name": "key_name",
        "user_data": "user_data",
        "hostname": "hostname",
        "trusted_image_certificates": "trusted_image_certificates",
        "OS-DCF:diskConfig": "disk_config",
    }
    details = {name: request[key] for key, name in names.items() if key in request}
    if "key_name" in details:
        key = await find_key(call.requester, key_name) if key_name else None
        details["public_key"] = msgspec.to_builtins(key)
    if "user_data" in details:
        details["user_data"] = seal_user_data(call.engine, None if user_data is None else as_text(user_data))
    if files := [as_object(one) for one in as_list(request.get("personality"))]:
        contents = [{name: as_text(text) for name, text in one.items()} for one in files]
        details["personality"] = seal_files(call.engine, contents)
    addresses = {"accessIPv4": "access_ip_v4", "accessIPv6": "access_ip_v6"}
    return details | {name: plain_address(as_text(request[key])) for key, name in addresses.items() if key in request}


async def _shown(call: Call, record: ServerRecord) -> dict[str, Content]:
    view = ServerView(call, groups=await groups_of(call, record))
    if call.at(2, 75):
        attributes = {**view.whole(record), "user_data": view.user_data(record)}
        attributes.pop(f"{ATTRIBUTES}user_data", None)  # an administrator's name for it; here it has its own key
        return attributes
    attributes = view.core(record)
    if call.at(2, 54):
        attributes["key_name"] = record.details.key_name
    if call.at(2, 57):
        attributes["user_data"] = view.user_data(record)
    return attributes


ROUTES = [
    Route(
        method="POST",
        path="/servers/{server}/action",
        handler=rebuild,
        rule=RULE,
        body=schemas.REBUILD,
        action="rebuild",
    )
]
