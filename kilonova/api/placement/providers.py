"""Resource providers, one by one: made, shown, changed, deleted. Their list is provider_list.py."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.placement import forms, view
from kilonova.api.placement.view import PROVIDER, dated
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.placement import providers, tree
from kilonova.placement.removal import remove_provider

NAME = {"type": "string", "minLength": 1, "maxLength": 200}
PARENT = {"anyOf": [forms.UUID, {"type": "null"}]}
CREATE = forms.BodyForms(
    {
        (1, 0): forms.closed({"name": NAME, "uuid": forms.UUID}, ("name",)),
        (1, 14): forms.closed({"name": NAME, "uuid": forms.UUID, "parent_provider_uuid": PARENT}, ("name",)),
    }
)
CHANGE = forms.BodyForms(
    {
        (1, 0): forms.closed({"name": NAME}, ("name",)),
        (1, 14): forms.closed({"name": NAME, "parent_provider_uuid": PARENT}, ("name",)),
    }
)

SENTENCES = {  # clients look for these words
    "provider_in_use": "Unable to delete resource provider {uuid}: Resource provider has allocations.",
    "provider_has_children": "Unable to delete parent resource provider {uuid}: It has child resource providers.",
}


async def create(call: Call) -> Response:
    body = call.body
    uuid = str(UUID(body["uuid"])) if body.get("uuid") else call.service.world.ids.uuid()
    try:
        provider = await providers.create(call.db.placement, uuid, body["name"], body.get("parent_provider_uuid"))
    except Refused as why:
        raise _about(why, f'create resource provider "{body["name"]}", {uuid}') from None
    location = {"Location": call.url(f"/resource_providers/{uuid}")}
    if not call.at(1, 20):
        return nothing(201, location)
    answer = dated(call, view.provider(call, provider), provider.updated_at)
    answer.headers.update(location)
    return answer


async def show(call: Call) -> Response:
    provider = await providers.read(call.db.placement, call.path["provider"])
    return dated(call, view.provider(call, provider), provider.updated_at)


async def change(call: Call) -> Response:
    """Update a provider. Without a parent in the body it keeps its parent."""
    parent: tree.NewParent = call.body.get("parent_provider_uuid", tree.AS_IT_IS)
    uuid, may_move = call.path["provider"], call.at(1, 37)
    try:
        changed = await providers.change(call.db.placement, uuid, call.body["name"], parent, may_move=may_move)
    except Refused as why:
        raise _about(why, f"save resource provider {uuid}") from None
    return dated(call, view.provider(call, changed), changed.updated_at)


def _about(why: Refused, what: str) -> Refused:
    return Refused(why.code, f"Unable to {what}: {why.message}") if why.code == "bad_parent" else why


async def delete(call: Call) -> Response:
    uuid = call.path["provider"]
    try:
        existed = await remove_provider(call.db.placement, uuid)
    except Refused as why:
        text = SENTENCES.get(why.code, "{why}").format(uuid=uuid, why=why.message)
        raise Refused(why.code, text) from None
    if not existed:
        raise Refused(404, f"No resource provider with uuid {uuid[:60]} found for delete")
    return nothing()


RULE = "placement:resource_providers"
ROUTES = [
    Route(method="POST", path="/resource_providers", handler=create, rule=f"{RULE}:create", body=CREATE),
    Route(method="GET", path=PROVIDER, handler=show, rule=f"{RULE}:show"),
    Route(method="PUT", path=PROVIDER, handler=change, rule=f"{RULE}:update", body=CHANGE),
    Route(method="DELETE", path=PROVIDER, handler=delete, rule=f"{RULE}:delete"),
]
