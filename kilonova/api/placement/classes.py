"""Resource classes."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.content import Content
from kilonova.api.placement import forms
from kilonova.api.placement.view import dated
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.placement import classes

SINCE = (1, 2)
NAME = {"type": "string", "pattern": forms.CUSTOM_NAME, "maxLength": forms.LONGEST}
BODY = forms.BodyForms(forms.closed({"name": NAME}, ("name",)))


async def list_(call: Call) -> Response:
    names = await classes.list_classes(call.db.placement)
    return dated(call, {"resource_classes": [_shown(call, name) for name in names]})


async def create(call: Call) -> Response:
    name = call.body["name"]
    if not await classes.create(call.db.placement, name):
        raise Refused(409, f"Conflicting resource class already exists: {name}")
    return nothing(201, _location(call, name))


async def show(call: Call) -> Response:
    name = call.path["class"]
    if not await classes.is_known(call.db.placement, name):
        raise classes.missing(name)
    return dated(call, _shown(call, name))


async def rename(call: Call) -> Response:
    await classes.rename(call.db.placement, call.path["class"], call.body["name"])
    return dated(call, _shown(call, call.body["name"]))


async def ensure(call: Call) -> Response:
    name = call.path["class"]
    BODY.check({"name": name}, call.version)
    is_new = await classes.create(call.db.placement, name)
    return nothing(201 if is_new else 204, _location(call, name))


async def delete(call: Call) -> Response:
    await classes.delete_class(call.db.placement, call.path["class"])
    return nothing()


def _shown(call: Call, name: str) -> dict[str, Content]:
    return {"name": name, "links": [{"rel": "self", "href": f"{call.prefix}/resource_classes/{name}"}]}


def _location(call: Call, name: str) -> dict[str, str]:
    return {"Location": call.url(f"/resource_classes/{name}")}


RULE = "placement:resource_classes"
PATH, ONE = "/resource_classes", "/resource_classes/{class}"
ROUTES = [
    Route(method="GET", path=PATH, handler=list_, rule=f"{RULE}:list", since=SINCE),
    Route(method="POST", path=PATH, handler=create, rule=f"{RULE}:create", since=SINCE, body=BODY),
    Route(method="GET", path=ONE, handler=show, rule=f"{RULE}:show", since=SINCE),
    Route(method="PUT", path=ONE, handler=rename, rule=f"{RULE}:update", since=SINCE, until=(1, 6), body=BODY),
    Route(method="PUT", path=ONE, handler=ensure, rule=f"{RULE}:update", since=(1, 7)),
    Route(method="DELETE", path=ONE, handler=delete, rule=f"{RULE}:delete", since=SINCE),
]
