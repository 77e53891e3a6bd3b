"""Aggregates of a provider."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.content import Content
from kilonova.api.placement import forms
from kilonova.api.placement.view import PROVIDER, dated
from kilonova.api.routes import Route
from kilonova.placement import aggregates

WITH_GENERATION = (1, 19)
LIST = {"type": "array", "items": forms.UUID, "uniqueItems": True}
OBJECT = forms.closed(
    {"aggregates": LIST, "resource_provider_generation": forms.INTEGER}, ("aggregates", "resource_provider_generation")
)
PUT = forms.BodyForms({(1, 1): LIST, WITH_GENERATION: OBJECT})


async def show(call: Call) -> Response:
    provider, uuids = await aggregates.of_provider(call.db.placement, call.path["provider"])
    return _answer(call, uuids, provider.generation)


async def change(call: Call) -> Response:
    compares = call.version >= WITH_GENERATION
    wanted = call.body["aggregates"] if compares else call.body
    generation = call.body["resource_provider_generation"] if compares else None
    changed = await aggregates.set_aggregates(
        call.db.placement, call.path["provider"], wanted, generation, raises=compares
    )
    return _answer(call, wanted, changed.generation)


def _answer(call: Call, uuids: list[str], generation: int) -> Response:
    content: dict[str, Content] = {"aggregates": uuids}
    if call.version >= WITH_GENERATION:
        content["resource_provider_generation"] = generation
    return dated(call, content)


RULE = "placement:resource_providers:aggregates"
PATH = f"{PROVIDER}/aggregates"
ROUTES = [
    Route(method="GET", path=PATH, handler=show, rule=f"{RULE}:list", since=(1, 1)),
    Route(method="PUT", path=PATH, handler=change, rule=f"{RULE}:update", since=(1, 1), body=PUT),
]
