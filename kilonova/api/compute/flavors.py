"""/flavors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.paging import limit_of, next_links
from kilonova.api.compute.patterns import matcher
from kilonova.api.compute.schemas import flavors as forms
from kilonova.api.compute.schemas.types import MAX_INT
from kilonova.api.content import Content
from kilonova.api.routes import ANY_TOKEN, Route
from kilonova.domain.errors import Refused
from kilonova.domain.words import is_true
from kilonova.services.compute.flavors import FlavorRecord, NewFlavor

MANAGE = "os_compute_api:os-flavor-manage:"
SEES_SPECS = "os_compute_api:os-flavor-extra-specs:index"
FALSE_WORDS = ("0", "f", "false", "off", "n", "no")


async def list_(call: Call) -> Response:
    found, limit = await _page(call)
    return answer(_listed(call, [brief(call, flavor) for flavor in found], limit, "/flavors"))


async def detail(call: Call) -> Response:
    found, limit = await _page(call)
    with_specs = _with_specs(call)
    return answer(_listed(call, [view(call, one, with_specs) for one in found], limit, "/flavors/detail"))


async def show(call: Call) -> Response:
    flavor = await call.service.flavors.find(call.path["flavor"], caller=call.caller)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def create(call: Call) -> Response:
    wish = call.body["flavor"]
    id_ = wish.get("id")
    new = NewFlavor(
        id="" if id_ is None else str(id_),
        name=wish["name"].strip(),
        memory_mb=_number(wish, "ram", least=1),
        vcpus=_number(wish, "vcpus", least=1),
        disk_gb=_number(wish, "disk"),
        ephemeral_gb=_number(wish, "OS-FLV-EXT-DATA:ephemeral"),
        swap_mb=_number(wish, "swap"),
        rxtx_factor=_ratio(wish.get("rxtx_factor", 1.0)),
        is_public=is_true(wish.get("os-flavor-access:is_public", True)),
        description=wish.get("description"),
    )
    flavor = await call.service.flavors.create(new)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def update(call: Call) -> Response:
    """Nothing but the description can change: servers keep copies of the sizes."""
    description = call.body["flavor"]["description"]
    flavor = await call.service.flavors.describe(call.path["flavor"], description, caller=call.caller)
    return answer({"flavor": view(call, flavor, _with_specs(call))})


async def delete(call: Call) -> Response:
    await call.service.flavors.delete(call.path["flavor"])
    return nothing(202)


def brief(call: Call, flavor: FlavorRecord) -> dict[str, Content]:
    shown: dict[str, Content] = {
        "id": flavor.id,
        "name": flavor.name,
        "links": [
            {"rel": "self", "href": call.url(f"/flavors/{flavor.id}")},
            {"rel": "bookmark", "href": f"{call.service.public_url}/compute/flavors/{flavor.id}"},
        ],
    }
    if call.at(2, 55):
        shown["description"] = flavor.description
    return shown


def view(call: Call, flavor: FlavorRecord, with_specs: bool) -> dict[str, Content]:
    shown = brief(call, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.disk_gb,
        "swap": flavor.swap_mb or (0 if call.at(2, 75) else ""),
        "vcpus": flavor.vcpus,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "os-flavor-access:is_public": flavor.is_public,
    }
    if with_specs:
        shown["extra_specs"] = flavor.extra_specs
    if not call.at(2, 102):
        shown |= {"OS-FLV-DISABLED:disabled": False, "rxtx_factor": flavor.rxtx_factor}
    return shown


def _with_specs(call: Call) -> bool:
    return call.at(2, 61) and call.allows(SEES_SPECS)


def _listed(call: Call, shown: list[dict[str, Content]], limit: int, path: str) -> dict[str, Content]:
    links = next_links(call, path, shown, limit, shown[-1]["id"]) if shown else None
    return {"flavors": shown} | ({"flavors_links": links} if links else {})


# -- filters, order, pages --------------------------------------------------------------------------------------------


async def _page(call: Call) -> tuple[Sequence[FlavorRecord], int]:
    """There are tens of flavors, not thousands: all that the caller may see are read, and sorted here."""
    limit, marker = limit_of(call), call.query.get("marker")
    wanted = _filter(call)
    visible = await call.service.flavors.all(caller=call.caller)
    name = forms.SORT_KEYS[call.query.get("sort_key") or "flavorid"]
    ordered = sorted(visible, key=lambda flavor: _key(flavor, name), reverse=call.query.get("sort_dir") == "desc")
    if marker is not None:
        at = next((n for n, flavor in enumerate(ordered) if flavor.id == marker), None)
        if at is None:
            raise Refused(400, f"marker [{marker[:255]}] not found")
        ordered = ordered[at + 1 :]
    return [flavor for flavor in ordered if wanted(flavor)][:limit], limit


def _key(flavor: FlavorRecord, name: str) -> tuple[Any, ...]:
    value = getattr(flavor, name) if name else None
    return (value is not None, value if value is not None else 0, flavor.number)


def _filter(call: Call) -> Any:
    public = _public(call)
    least_ram, least_disk = _least(call, "minRam"), _least(call, "minDisk")
    by_name = matcher(call.query["name"], "name") if call.at(2, 102) and call.query.get("name") else None

    def wanted(flavor: FlavorRecord) -> bool:
        of_kind = {None: True, True: flavor.is_public or flavor.granted, False: not flavor.is_public}
        fits = flavor.memory_mb >= least_ram and flavor.disk_gb >= least_disk
        return of_kind[public] and fits and (by_name is None or by_name(flavor.name))

    return wanted


def _public(call: Call) -> bool | None:
    """None: all of them. Only an administrator may ask for those that others may not use."""
    given = call.query.get("is_public")
    if given is None or not call.caller.is_admin:
        return True
    if given.lower() == "none":
        return None
    if not is_true(given) and given.lower() not in FALSE_WORDS:
        raise Refused(400, f"Invalid is_public filter [{given[:80]}]")
    return is_true(given)


def _least(call: Call, name: str) -> int:
    given = call.query.get(name, "0")
    if not given.isascii() or not given.removeprefix("-").isdigit() or len(given) > 20:
        raise Refused(400, f"Invalid {name} filter [{given[:80]}]")
    return int(given)


def _number(wish: Mapping[str, int | float | str], key: str, least: int = 0) -> int:
    """Return the value as an integer. Check its bounds: the schema does not check those of a string."""
    value = int(wish.get(key, 0))
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
