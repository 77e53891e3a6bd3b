"""/types: create, list, show, change, delete."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.queries import list_body
from kilonova.api.routes import Route
from kilonova.api.volume import forms
from kilonova.api.volume.query import as_requested, page_of, pairs
from kilonova.domain.errors import Refused
from kilonova.domain.flags import flag_of, is_true
from kilonova.records.access import USABLE
from kilonova.records.query import EQUAL, Condition
from kilonova.services.volume.volume import VolumeType

RULE = "volume_extension:"
SEEN_BY_ALL = ("multiattach", "RESKEY:availability_zones", "replication_enabled")  # of the extra specs
ORDERS = {name: name for name in ("created_at", "id", "name", "updated_at")}


async def type_of(call: Call) -> VolumeType:
    """Return the type with this id. A name does not count: it may look like another type's id."""
    volume_type = await call.service.volumes.types.find(call.caller, call.path["type"])
    if volume_type.id != call.path["type"]:
        raise Refused(404, f"Volume type {call.path['type'][:80]} could not be found.")
    return volume_type


async def create(call: Call) -> Response:
    request = call.body["volume_type"]
    new = VolumeType(
        id="",
        name=request["name"].strip(),
        description=request.get("description"),
        is_public=is_true(request.get("os-volume-type-access:is_public", True)),
        extra_specs=request.get("extra_specs", {}),
    )
    created_type = await call.service.volumes.types.create(new)
    access = {"os-volume-type-access:is_public": created_type.is_public}
    return answer({"volume_type": brief(call, created_type) | access})


async def list_(call: Call) -> Response:
    query = page_of(call, ORDERS)._replace(conditions=_public(call))
    specs = pairs(call, call.query["extra_specs"]) if call.at(3, 52) and "extra_specs" in call.query else {}
    if specs:  # visible extra specs are not a column, so filter and page here
        volume_types = await call.service.volumes.types.list_(call.caller, query._replace(limit=-1))
        volume_types = [one for one in volume_types if specs.items() <= visible_specs(call, one).items()]
        page = volume_types[query.offset : query.offset + query.limit]
    else:
        page = await call.service.volumes.types.list_(call.caller, query)
    views, path = [view(call, one) for one in page], f"{as_requested(call)}/types"
    return answer(list_body(call, path, "volume_types", views, query.limit, "offset", links="volume_type_links"))


def _public(call: Call) -> tuple[Condition, ...]:
    """Return the filter by `is_public`, which only administrators have."""
    public = call.query.get("is_public", "true").lower() if call.caller.is_admin else "none"
    if public == "none":
        return ()
    if (value := flag_of(public)) is None:
        raise Refused(400, f"Invalid is_public filter {public[:40]!r}: use true, false or none.")
    return (Condition(USABLE, EQUAL, ()) if value else Condition("is_public", EQUAL, 0),)


async def show(call: Call) -> Response:
    if call.path["type"] == "default":
        return answer({"volume_type": view(call, await call.service.volumes.types.default(call.caller))})
    return answer({"volume_type": view(call, await type_of(call))})


async def update(call: Call) -> Response:
    volume_type, request = await type_of(call), call.body["volume_type"]
    changes = {name: value for name, value in request.items() if value is not None}
    if not changes:
        raise Refused(400, "Specify volume type name, description, is_public or a combination thereof.")
    if "name" in changes:
        changes["name"] = changes["name"].strip()
    if "is_public" in changes:
        changes["is_public"] = is_true(changes["is_public"])
    changed = await call.service.volumes.types.update(call.caller, volume_type.id, changes)
    return answer({"volume_type": brief(call, changed)})


async def delete(call: Call) -> Response:
    await call.service.volumes.types.delete(call.caller, (await type_of(call)).id)
    return nothing(202)


def brief(call: Call, one: VolumeType) -> dict[str, Content]:
    attributes: dict[str, Content] = {
        "id": one.id,
        "name": one.name,
        "is_public": one.is_public,
        "description": one.description,
    }
    if call.allows(f"{RULE}access_types_extra_specs"):
        attributes["extra_specs"] = visible_specs(call, one)
    return attributes


def view(call: Call, one: VolumeType) -> dict[str, Content]:
    attributes = brief(call, one)
    if call.allows(f"{RULE}access_types_qos_specs_id"):
        attributes["qos_specs_id"] = None
    if call.allows(f"{RULE}volume_type_access"):
        attributes["os-volume-type-access:is_public"] = one.is_public
    return attributes


def visible_specs(call: Call, one: VolumeType) -> dict[str, str]:
    if call.allows(f"{RULE}types_extra_specs:read_sensitive"):
        return one.extra_specs
    return {name: value for name, value in one.extra_specs.items() if name in SEEN_BY_ALL}


TYPE = "/types/{type}"
ROUTES = [
    Route(method="POST", path="/types", handler=create, rule=f"{RULE}type_create", body=forms.CREATE_TYPE),
    Route(method="GET", path="/types", handler=list_, rule=f"{RULE}type_get_all"),
    Route(method="GET", path=TYPE, handler=show, rule=f"{RULE}type_get"),
    Route(method="PUT", path=TYPE, handler=update, rule=f"{RULE}type_update", body=forms.UPDATE_TYPE),
    Route(method="DELETE", path=TYPE, handler=delete, rule=f"{RULE}type_delete"),
]
