"""/servers/{server}/metadata: the owner's keys and values."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.compute.schemas import server_metadata as schemas
from kilonova.api.compute.server import change_details, check_state, check_unlocked, server_of
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.quota.service import check_metadata

RULE = "os_compute_api:server-metadata:"
STATES = ("active", "paused", "suspended", "stopped")


class ServerMetadata(KeyValues):
    async def read(self, call: Call) -> dict[str, str]:
        return (await server_of(call)).details.metadata

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        record = await server_of(call)
        check_unlocked(call, record)
        check_state(record, "update metadata", STATES, busy=True)
        limit = await call.service.quotas.limit("metadata_items", call.caller.project_id, call.caller.user_id)

        def edited(details: Details) -> None:
            old, details.metadata = details.metadata, edit(details.metadata)
            if not details.metadata.keys() <= old.keys():  # what only gives back is never too much
                check_metadata(limit, len(details.metadata))

        return (await change_details(call, record, edited)).details.metadata

    def missing(self, call: Call) -> Refused:
        return Refused(404, "Metadata item was not found")


RULES = {
    "list": "index",
    "merge": "create",
    "replace": "update_all",
    "show": "show",
    "put": "update",
    "remove": "delete",
}
ROUTES = ServerMetadata().routes(
    "/servers/{server}/metadata", {name: RULE + rule for name, rule in RULES.items()}, schemas.ALL, schemas.ONE
)
