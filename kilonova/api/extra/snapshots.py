"""Images of servers through Kilonova's own REST: the request itself and its dry run."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kilonova.api.call import Call
from kilonova.api.compute.server_image import begin_snapshot, snapshot_of
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject, as_object, as_text
from kilonova.engine.accept import Accepted, IdempotencyKey
from kilonova.engine.rehearse import Rehearsal
from kilonova.store.server_records import ServerRecord, find

Name = Annotated[str, Meta(min_length=1, max_length=255)]


class SnapshotBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make an image of a server."""

    operation: Literal["snapshot"]
    server: str
    name: Name  # of the image
    metadata: dict[Name, Annotated[str, Meta(max_length=255)]] = {}


async def submit_snapshot(call: Call, request: SnapshotBody, key: IdempotencyKey | None) -> tuple[str, Accepted]:
    record, image = await server_named(call, request.server), call.service.world.ids.uuid()
    return record.id, await begin_snapshot(call, record, image, request.name, request.metadata, key)


async def planned_snapshot(call: Call, request: SnapshotBody) -> tuple[str, JsonObject]:
    record, image = await server_named(call, request.server), call.service.world.ids.uuid()
    return await snapshot_of(call, record, image, request.name, request.metadata)


async def with_image_quota(call: Call, plan: Rehearsal) -> Rehearsal:
    """Add the bytes of image quota that the project has left to the plan; -1: unlimited."""
    image = as_object(plan.outlook["image"])
    usage = await call.service.images.quotas.show(as_text(image["owner"]))
    left = max(usage.limit - usage.used, 0) if usage.limit >= 0 else -1
    quota = {"image_bytes": {"used": usage.used, "limit": usage.limit, "left": left}}
    rehearsal: Rehearsal = msgspec.structs.replace(plan, outlook={**plan.outlook, "quota": quota})
    return rehearsal


async def server_named(call: Call, server: str) -> ServerRecord:
    record = await find(call.db, server)
    if record is None:
        raise Refused("not_found", f"Instance {server} could not be found.")
    return record
