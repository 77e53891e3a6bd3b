"""POST /servers/{server}/action resize: the owner gives a server another flavor.

A wrong flavor is refused before anything is stored. The scheduler chooses the host later.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, nothing
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import check_unlocked, server_of
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.operations.checks.hardware import with_properties
from kilonova.operations.checks.images import check_fit
from kilonova.services.image.image import Image
from kilonova.store.server_records import ServerRecord

DISK_CONFIG = "OS-DCF:diskConfig"


async def resize(call: Call) -> Response:
    if (again := await repeated(call)) is not None:
        return nothing(202, {OPERATION_HEADER: again})
    record, request = await server_of(call), call.body["resize"]
    check_unlocked(call, record)
    params = await resize_params(call, record, str(request["flavorRef"]))
    if DISK_CONFIG in request:
        _check_disk_config(record, request[DISK_CONFIG])
        params["disk_config"] = request[DISK_CONFIG]
    ask = Ask(kind="resize", server_id=record.id, cause=call.cause, params=params, key=idempotency_key(call))
    accepted = await submit(call.engine, ask)
    return nothing(202, {OPERATION_HEADER: accepted.operation_id})


async def resize_params(call: Call, record: ServerRecord, flavor_id: str) -> dict[str, Json]:
    """Return the parameters of the operation. Raise `Refused` if the flavor is unknown to the caller, too small for the
    image, or requests impossible hardware. The operation itself compares sizes."""
    try:
        flavor = (await call.service.flavors.find(flavor_id, caller=call.caller)).shape()
    except Refused as why:
        raise Refused(400, why.message) from None
    details = record.details
    if not (details.volume_backed or any(one.is_root for one in record.volumes)):
        check_fit(call.requester, flavor, await _image(call, record))
    return {"flavor": msgspec.to_builtins(with_properties(call.requester, flavor, details.image_properties))}


async def _image(call: Call, record: ServerRecord) -> Image | None:
    """Return the image; None if it was deleted or the caller may no longer see it. The server has its own copy of the
    image's content and properties."""
    try:
        return await call.service.images.find(call.caller, record.image_ref) if record.image_ref else None
    except Refused:
        return None


def _check_disk_config(record: ServerRecord, disk_config: str) -> None:
    disabled = record.details.image_properties.get("auto_disk_config", "").strip().lower() == "disabled"
    if disabled and disk_config == "AUTO":
        raise Refused(400, f"Requested image {record.image_ref} has automatic disk resize disabled.")


ROUTES = [
    Route(
        method="POST",
        path="/servers/{server}/action",
        handler=resize,
        rule="os_compute_api:servers:resize",
        body=schemas.RESIZE,
        action="resize",
    )
]
