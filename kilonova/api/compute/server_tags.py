"""/servers/{server}/tags: the owner's words for a server, at most 50."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.schemas.types import TAGS, closed
from kilonova.api.compute.server import change_details, placed, server_of
from kilonova.api.forms import Forms
from kilonova.api.routes import Route
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:os-server-tags:"
MOST, LONGEST = 50, 60
REPLACE = Forms(closed({"tags": {**TAGS, "uniqueItems": False}}, "tags"))


async def list_(call: Call) -> Response:
    return answer({"tags": (await server_of(call)).details.tags})


async def show(call: Call) -> Response:
    record, tag = await server_of(call), call.path["tag"]
    if tag not in record.details.tags:
        raise Refused(404, f"Server {record.id} has no tag '{tag[:LONGEST]}'")
    return nothing(204)


async def replace(call: Call) -> Response:
    given = list(dict.fromkeys(call.body["tags"]))
    changed = await _change(call, lambda old: given)
    return answer({"tags": changed.details.tags})


async def put(call: Call) -> Response:
    tag = call.path["tag"]
    if len(tag) > LONGEST or not re.fullmatch(r"[^,/\x00-\x1f]+", tag):
        rule = f"A tag has 1 to {LONGEST} characters, no comma and no slash."
        raise Refused(400, f"Tag '{tag[:LONGEST]}' is invalid. {rule}")
    new = True

    def with_it(old: list[str]) -> list[str]:
        nonlocal new
        new = tag not in old
        if new and len(old) >= MOST:
            raise Refused(400, f"The number of tags exceeded the per-server limit {MOST}")
        return [*old, tag] if new else old

    record = await _change(call, with_it)
    if not new:
        return nothing(204)
    return nothing(201, {"Location": call.url(f"/servers/{record.id}/tags/{quote(tag, safe='')}")})


async def remove(call: Call) -> Response:
    tag = call.path["tag"]

    def without(old: list[str]) -> list[str]:
        if tag not in old:
            raise Refused(404, f"Server {call.path['server']} has no tag '{tag[:LONGEST]}'")
        return [one for one in old if one != tag]

    await _change(call, without)
    return nothing(204)


async def remove_all(call: Call) -> Response:
    await _change(call, lambda old: [])
    return nothing(204)


async def _change(call: Call, become: Callable[[list[str]], list[str]]) -> ServerRecord:
    record = await placed(call, await server_of(call), "update tags")

    def edit(details: Details) -> None:
        details.tags = become(details.tags)

    return await change_details(call, record, edit)


SINCE = (2, 26)
ALL, ONE = "/servers/{server}/tags", "/servers/{server}/tags/{tag}"
ROUTES = [
    Route(method="GET", path=ALL, handler=list_, rule=f"{RULE}index", since=SINCE),
    Route(method="PUT", path=ALL, handler=replace, rule=f"{RULE}update_all", since=SINCE, body=REPLACE),
    Route(method="DELETE", path=ALL, handler=remove_all, rule=f"{RULE}delete_all", since=SINCE),
    Route(method="GET", path=ONE, handler=show, rule=f"{RULE}show", since=SINCE),
    Route(method="PUT", path=ONE, handler=put, rule=f"{RULE}update", since=SINCE),
    Route(method="DELETE", path=ONE, handler=remove, rule=f"{RULE}delete", since=SINCE),
]
