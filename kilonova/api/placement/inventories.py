"""Inventories of a provider: all of them, or one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.content import Content
from kilonova.api.placement import forms
from kilonova.api.placement.forms import MOST
from kilonova.api.placement.view import PROVIDER, dated
from kilonova.api.routes import Route, Version
from kilonova.domain.errors import Refused
from kilonova.placement import offers
from kilonova.placement.inventories import Offer

MOST_RATIO = 3.40282e38
NUMBERS: dict[str, Content] = {
    "total": {"type": "integer", "minimum": 1, "maximum": MOST},
    "reserved": {"type": "integer", "minimum": 0, "maximum": MOST},
    "min_unit": {"type": "integer", "minimum": 1, "maximum": MOST},
    "max_unit": {"type": "integer", "minimum": 1, "maximum": MOST},
    "step_size": {"type": "integer", "minimum": 1, "maximum": MOST},
    "allocation_ratio": {"type": "number", "maximum": MOST_RATIO},
}
GENERATION = {"resource_provider_generation": forms.INTEGER}
CLASS = {"resource_class": {"type": "string", "pattern": forms.NAME_KEY}}
RECORD = forms.closed({**GENERATION, **NUMBERS}, ("total",))
ALL = forms.closed(
    {**GENERATION, "inventories": forms.keyed(forms.NAME_KEY, RECORD)},
    ("resource_provider_generation", "inventories"),
)
POST = forms.BodyForms(forms.closed({**GENERATION, **NUMBERS, **CLASS}, ("total", "resource_class")))
PUT_ALL = forms.BodyForms(ALL)
PUT_ONE = forms.BodyForms(forms.closed({**GENERATION, **NUMBERS}, ("total", "resource_provider_generation")))


async def list_(call: Call) -> Response:
    provider, rows = await offers.read(call.db.placement, call.path["provider"])
    inventories = {row["name"]: {name: row[name] for name in offers.FIELDS} for row in rows}
    content = {"inventories": inventories, "resource_provider_generation": provider.generation}
    return dated(call, content, provider.updated_at)


async def create(call: Call) -> Response:
    uuid, name = call.path["provider"], call.body["resource_class"]
    offer = offered(call.body, name, uuid, call.version, "create")
    generation = await offers.add(call.db.placement, uuid, name, offer)
    answer = dated(call, _shown(offer, generation), status=201)
    answer.headers["Location"] = call.url(f"/resource_providers/{uuid}/inventories/{name}")
    return answer


async def replace(call: Call) -> Response:
    uuid = call.path["provider"]
    wanted = offered_all(call.body["inventories"], uuid, call.version)
    generation = await offers.replace(call.db.placement, uuid, call.body["resource_provider_generation"], wanted)
    inventories = {name: _fields(offer) for name, offer in wanted.items()}
    return dated(call, {"inventories": inventories, "resource_provider_generation": generation})


async def delete_all(call: Call) -> Response:
    await offers.replace(call.db.placement, call.path["provider"], None, {})
    return nothing()


async def show(call: Call) -> Response:
    uuid, name = call.path["provider"], call.path["class"]
    provider, rows = await offers.read(call.db.placement, uuid)
    for row in rows:
        if row["name"] == name:
            inventory = {field: row[field] for field in offers.FIELDS}
            content = inventory | {"resource_provider_generation": provider.generation}
            return dated(call, content, provider.updated_at)
    raise Refused(404, f"No inventory of class {name[:300]} for {uuid}")


async def change(call: Call) -> Response:
    uuid, name, body = call.path["provider"], call.path["class"], call.body
    offer = offered(body, name, uuid, call.version, "update")
    generation = await offers.change(call.db.placement, uuid, body["resource_provider_generation"], name, offer)
    return dated(call, _shown(offer, generation))


async def delete(call: Call) -> Response:
    await offers.remove(call.db.placement, call.path["provider"], call.path["class"])
    return nothing()


# -- what is offered --------------------------------------------------------------------------------------------------


def offered_all(given: Mapping[str, Mapping[str, Any]], uuid: str, version: Version) -> dict[str, Offer]:
    return {name: offered(each, name, uuid, version, "update") for name, each in given.items()}


def offered(given: Mapping[str, Any], name: str, uuid: str, version: Version, verb: str) -> Offer:
    """Return the inventory with its defaults. Until 1.25 something had to be left beside the reserved amount."""
    offer = offers.offer(given)
    left = (offer["total"] - offer["reserved"]) * offer["allocation_ratio"]  # less than one unit counts as none
    may_be_none = version >= (1, 26)
    if left >= 1 or (left > -1 and may_be_none):
        return offer
    why = "greater than total" if may_be_none else "greater than or equal to total"
    text = f"Unable to {verb} inventory for resource provider {uuid}: of {name} the reserved value is {why}."
    raise Refused(400, text)


def _shown(offer: Offer, generation: int) -> dict[str, Content]:
    return _fields(offer) | {"resource_provider_generation": generation}


def _fields(offer: Offer) -> dict[str, Content]:
    return {name: offer[name] for name in offers.FIELDS}


RULE = "placement:resource_providers:inventories"
PATH = f"{PROVIDER}/inventories"
ONE = f"{PATH}/{{class}}"
ROUTES = [
    Route(method="GET", path=PATH, handler=list_, rule=f"{RULE}:list"),
    Route(method="POST", path=PATH, handler=create, rule=f"{RULE}:create", body=POST),
    Route(method="PUT", path=PATH, handler=replace, rule=f"{RULE}:update", body=PUT_ALL),
    Route(method="DELETE", path=PATH, handler=delete_all, rule=f"{RULE}:delete", since=(1, 5), missing=405),
    Route(method="GET", path=ONE, handler=show, rule=f"{RULE}:show"),
    Route(method="PUT", path=ONE, handler=change, rule=f"{RULE}:update", body=PUT_ONE),
    Route(method="DELETE", path=ONE, handler=delete, rule=f"{RULE}:delete"),
]
