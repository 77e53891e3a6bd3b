"""/servers/{server}/tags: the owner's words for a server, at most 50."""

from __future__ import annotations

import re

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.collection import EditTags, Tags
from kilonova.api.compute.schemas.types import TAGS, closed
from kilonova.api.compute.server import change_details, placed, server_of
from kilonova.api.forms import Forms
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused

RULE = "os_compute_api:os-server-tags:"
MOST, LONGEST = 50, 60
REPLACE = Forms(closed({"tags": {**TAGS, "uniqueItems": False}}, "tags"))


class ServerTags(Tags):
    async def read(self, call: Call) -> list[str]:
        return (await server_of(call)).details.tags

    async def change(self, call: Call, edit: EditTags) -> list[str]:
        record = await placed(call, await server_of(call), "update tags")

        def edited(details: Details) -> None:
            details.tags = edit(details.tags)

        return (await change_details(call, record, edited)).details.tags

    def check(self, call: Call, tag: str) -> None:
        if len(tag) > LONGEST or not re.fullmatch(r"[^,/\x00-\x1f]+", tag):
            rule = f"A tag has 1 to {LONGEST} characters, no comma and no slash."
            raise Refused(400, f"Tag '{tag[:LONGEST]}' is invalid. {rule}")

    def added_to(self, call: Call, old: list[str], tag: str) -> list[str]:
        if len(old) >= MOST:
            raise Refused(400, f"The number of tags exceeded the per-server limit {MOST}")
        return [*old, tag]

    def missing(self, call: Call) -> Refused:
        return Refused(404, f"Server {call.path['server']} has no tag '{call.path['tag'][:LONGEST]}'")

    def added(self, call: Call, tag: str, is_new: bool) -> Response:
        return nothing(201, call.location("servers", call.path["server"], "tags", tag)) if is_new else nothing()


RULES = {
    "list": "index",
    "replace": "update_all",
    "clear": "delete_all",
    "has": "show",
    "add": "update",
    "remove": "delete",
}
ROUTES = ServerTags().routes(
    "/servers/{server}/tags", {name: RULE + rule for name, rule in RULES.items()}, REPLACE, since=(2, 26)
)
