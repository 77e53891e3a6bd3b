"""/servers/{server}/metadata: the owner's keys and values."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.schemas import server_metadata as schemas
from kilonova.api.compute.server import change_details, check_state, check_unlocked, server_of
from kilonova.api.routes import Route
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.quota.service import check_metadata
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:server-metadata:"
STATES = ("active", "paused", "suspended", "stopped")


async def list_(call: Call) -> Response:
    record = await server_of(call)
    return answer({"metadata": record.details.metadata})


async def show(call: Call) -> Response:
    metadata, key = (await server_of(call)).details.metadata, call.path["key"]
    if key not in metadata:
        raise Refused(404, "Metadata item was not found")
    return answer({"meta": {key: metadata[key]}})


async def merge(call: Call) -> Response:
    given = call.body["metadata"]
    changed = await _change(call, lambda old: {**old, **given})
    return answer({"metadata": changed.details.metadata})


async def replace(call: Call) -> Response:
    given = call.body["metadata"]
    changed = await _change(call, lambda old: dict(given))
    return answer({"metadata": changed.details.metadata})


async def put(call: Call) -> Response:
    meta, key = call.body["meta"], call.path["key"]
    if key not in meta:
        raise Refused(400, "Request body and URI mismatch")
    await _change(call, lambda old: {**old, **meta})
    return answer({"meta": meta})


async def remove(call: Call) -> Response:
    key = call.path["key"]

    def without(old: dict[str, str]) -> dict[str, str]:
        if key not in old:
            raise Refused(404, "Metadata item was not found")
        return {name: value for name, value in old.items() if name != key}

    await _change(call, without)
    return nothing(204)


async def _change(call: Call, become: Callable[[dict[str, str]], dict[str, str]]) -> ServerRecord:
    record = await server_of(call)
    check_unlocked(call, record)
    check_state(record, "update metadata", STATES, busy=True)
    limit = await call.service.quotas.limit("metadata_items", call.caller.project_id, call.caller.user_id)

    def edit(details: Details) -> None:
        old, details.metadata = details.metadata, become(details.metadata)
        if not details.metadata.keys() <= old.keys():  # what only gives back is never too much
            check_metadata(limit, len(details.metadata))

    return await change_details(call, record, edit)


ROUTES = [
    Route(method="GET", path="/servers/{server}/metadata", handler=list_, rule=f"{RULE}index"),
    Route(method="POST", path="/servers/{server}/metadata", handler=merge, rule=f"{RULE}create", body=schemas.ALL),
    Route(method="PUT", path="/servers/{server}/metadata", handler=replace, rule=f"{RULE}update_all", body=schemas.ALL),
    Route(method="GET", path="/servers/{server}/metadata/{key}", handler=show, rule=f"{RULE}show"),
    Route(method="PUT", path="/servers/{server}/metadata/{key}", handler=put, rule=f"{RULE}update", body=schemas.ONE),
    Route(method="DELETE", path="/servers/{server}/metadata/{key}", handler=remove, rule=f"{RULE}delete"),
]
