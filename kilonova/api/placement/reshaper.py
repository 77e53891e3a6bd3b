"""The reshaper: inventories of several providers and allocations of several consumers, replaced at once."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.placement import forms, inventories
from kilonova.api.placement.allocation_forms import BY_CONSUMER
from kilonova.api.placement.allocations import allocation_request, refused
from kilonova.api.routes import Route
from kilonova.placement.refusals import ClaimRefused
from kilonova.placement.reshape import reshape

SINCE = (1, 30)
INVENTORIES = forms.keyed(forms.UUID_KEY, inventories.ALL, minProperties=1)
BODY = forms.BodyForms(
    {
        version: forms.closed({"inventories": INVENTORIES, "allocations": form}, ("inventories", "allocations"))
        for version, form in BY_CONSUMER.items()
    }
)


async def change(call: Call) -> Response:
    body = call.body
    shapes = {
        uuid: (each["resource_provider_generation"], inventories.offered_all(each["inventories"], uuid, call.version))
        for uuid, each in body["inventories"].items()
    }
    requests = [allocation_request(call, consumer, each) for consumer, each in body["allocations"].items()]
    try:
        await reshape(call.db.placement, shapes, requests, call.caller.user_id)
    except ClaimRefused as why:
        raise refused(why) from None
    return nothing()


ROUTES = [
    Route(method="POST", path="/reshaper", handler=change, rule="placement:reshaper:reshape", since=SINCE, body=BODY)
]
