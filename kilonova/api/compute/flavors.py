"""/flavors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.paging import limit_of
from kilonova.api.compute.patterns import matcher
from kilonova.api.compute.schemas import flavors as forms
from kilonova.api.compute.schemas.types import MAX_INT
from kilonova.api.content import Content
from kilonova.api.queries import list_body
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import flag_of, is_true
from kilonova.records.access import USABLE
from kilonova.records.kinds import Order
from kilonova.records.query import AT_LEAST, EQUAL, Condition, ListQuery
from kilonova.services.compute.flavors import FlavorRecord, NewFlavor

MANAGE = "os_compute_api:os-flavor-manage:"
SEES_SPECS = "os_compute_api:os-flavor-extra-specs:index"


async def list_(call: Call) -> Response:
    flavors, limit = await _page(call)
    return answer(list_body(call, "/flavors", "flavors", [brief(call, flavor) for flavor in flavors], limit))


async def detail(call: Call) -> Response:
    flavors, limit = await _page(call)
    with_specs = _with_specs(call)
    views = [view(call, one, with_specs) for one in flavors]
    return answer(list_body(call, "/flavors/detail", "flavors", views, limit))


async def show(call: Call) -> Response:
    flavor = await call.service.flavors.find(call.path["flavor"], caller=call.caller)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def create(call: Call) -> Response:
    request = call.body["flavor"]
    id_ = request.get("id")
    new = NewFlavor(
        id="" if id_ is None else str(id_),
        name=request["name"].strip(),
        memory_mb=_number(request, "ram", least=1),
        vcpus=_number(request, "vcpus", least=1),
        disk_gb=_number(request, "disk"),
        ephemeral_gb=_number(request, "OS-FLV-EXT-DATA:ephemeral"),
        swap_mb=_number(request, "swap"),
        rxtx_factor=_ratio(request.get("rxtx_factor", 1.0)),
        is_public=is_true(request.get("os-flavor-access:is_public", True)),
        description=request.get("description"),
    )
    flavor = await call.service.flavors.create(new)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def update(call: Call) -> Response:
    """Change the description. Nothing else can change: servers keep copies of the sizes."""
    description = call.body["flavor"]["description"]
    flavor = await call.service.flavors.describe(call.path["flavor"], description, caller=call.caller)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def delete(call: Call) -> Response:
    await call.service.flavors.delete(call.path["flavor"])
    return nothing(202)


def brief(call: Call, flavor: FlavorRecord) -> dict[str, Content]:
    attributes: dict[str, Content] = {
        "id": flavor.id,
        "name": flavor.name,
        "links": [
            {"rel": "self", "href": call.url(f"/flavors/{flavor.id}")},
            {"rel": "bookmark", "href": f"{call.service.public_url}/compute/flavors/{flavor.id}"},
        ],
    }
    if call.at(2, 55):
        attributes["description"] = flavor.description
    return attributes


def view(call: Call, flavor: FlavorRecord, with_specs: bool) -> dict[str, Content]:
    attributes = brief(call, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "swap": flavor.swap_mb or (0 if call.at(2, 75) else ""),
        "vcpus": flavor.vcpus,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "os-flavor-access:is_public": flavor.is_public,
    }
    if with_specs:
        attributes["extra_specs"] = flavor.extra_specs
    if not call.at(2, 102):
        attributes |= {"OS-FLV-DISABLED:disabled": False, "rxtx_factor": flavor.rxtx_factor}
    return attributes


def _with_specs(call: Call) -> bool:
    return call.at(2, 61) and call.allows(SEES_SPECS)


# -- filters, order, pages --------------------------------------------------------------------------------------------


async def _page(call: Call) -> tuple[Sequence[FlavorRecord], int]:
    limit, descending = limit_of(call), call.query.get("sort_dir") == "desc"
    by = forms.SORT_KEYS[call.query.get("sort_key") or "flavorid"] or "number"
    query = ListQuery(_conditions(call), (Order(by, descending),), limit, marker=call.query.get("marker"))
    if not call.at(2, 102) or not call.query.get("name"):
        return await call.service.flavors.list_(call.caller, query), limit
    fits = matcher(call.query["name"], "name")  # a pattern, which SQL does not know: the page is cut here
    flavors = await call.service.flavors.list_(call.caller, query._replace(limit=-1))
    return [flavor for flavor in flavors if fits(flavor.name)][:limit], limit


def _conditions(call: Call) -> tuple[Condition, ...]:
    least = (_least(call, "minRam", "memory_mb"), _least(call, "minDisk", "disk_gb"))
    given = call.query.get("is_public")
    if given is None or not call.caller.is_admin:  # only an administrator may ask for those that others may not use
        return (*least, Condition(USABLE, EQUAL, ()))
    if given.lower() == "none":
        return least
    public = flag_of(given)
    if public is None:
        raise Refused(400, f"Invalid is_public filter [{given[:80]}]")
    return (*least, Condition(USABLE, EQUAL, ()) if public else Condition("is_public", EQUAL, 0))


def _least(call: Call, name: str, column: str) -> Condition:
    given = call.query.get(name, "0")
    if not given.isascii() or not given.removeprefix("-").isdigit() or len(given) > 20:
        raise Refused(400, f"Invalid {name} filter [{given[:80]}]")
    number = int(given)
    return Condition(column, AT_LEAST, max(number, 0)) if number <= MAX_INT else Condition("id", EQUAL, "")


def _number(request: Mapping[str, int | float | str], key: str, least: int = 0) -> int:
    """Return the value as an integer. Check its bounds: the schema does not check those of a string."""
    value = int(request.get(key, 0))
    if not least <= value <= MAX_INT:
        raise Refused(400, f"Invalid input received: {key} must be >= {least} and <= {MAX_INT}")
    return value


def _ratio(given: Any) -> float:
    value = float(given)
    if not 0 < value <= forms.LARGEST_RATIO:
        text = f"'rxtx_factor' argument must be a float between 0 and {forms.LARGEST_RATIO:g}"
        raise Refused(400, f"Invalid input received: {text}")
    return value


def _route(method: str, path: str, handler: Any, rule: str = "", **more: Any) -> Route:
    return Route(method=method, path=path, handler=handler, rule=MANAGE + rule if rule else ANY_TOKEN, **more)


ROUTES = [
    _route("GET", "/flavors", list_, query=forms.LIST),
    _route("POST", "/flavors", create, "create", body=forms.CREATE),
    _route("GET", "/flavors/detail", detail, query=forms.LIST),
    _route("GET", "/flavors/{flavor}", show),
    _route("PUT", "/flavors/{flavor}", update, "update", body=forms.UPDATE, since=(2, 55)),
    _route("DELETE", "/flavors/{flavor}", delete, "delete"),
]
