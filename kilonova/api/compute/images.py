"""/images until 2.35, and their metadata until 2.38: Image's records in the words of the time when Compute had them."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.collection import EditValues, KeyValues
from kilonova.api.compute.paging import limit_of, time_of
from kilonova.api.compute.schemas import server_metadata as schemas
from kilonova.api.compute.schemas.queries import ANY
from kilonova.api.compute.server_view import seconds
from kilonova.api.content import Content
from kilonova.api.image import rules
from kilonova.api.image.attributes import check_settable
from kilonova.api.queries import list_body, whole_number
from kilonova.api.routes import ANY_TOKEN, Handler, Route, Version
from kilonova.domain.errors import Refused
from kilonova.records.query import AT_LEAST, EQUAL, Condition, ListQuery
from kilonova.services.image.image import ACTIVE, QUEUED, SAVING, Image
from kilonova.services.image.listing import PROPERTY as HAS_PROPERTY
from kilonova.services.image.listing import scope

LAST: Version = (2, 35)
LAST_METADATA: Version = (2, 38)
STATUSES = {ACTIVE: "ACTIVE", QUEUED: "SAVING", SAVING: "SAVING"}
PROGRESS = {ACTIVE: 100, SAVING: 50, QUEUED: 25}
PROPERTY = "property-"
FILTERS = {"server": "instance_uuid", "type": "image_type"}  # that are properties
NUMBERS = {"minRam": "min_ram", "minDisk": "min_disk"}
LARGEST = 2**31 - 1


async def list_(call: Call) -> Response:
    images, limit = await _page(call)
    return answer(_listed(call, [_brief(call, image) for image in images], limit, "/images"))


async def detail(call: Call) -> Response:
    images, limit = await _page(call)
    return answer(_listed(call, [_view(call, image) for image in images], limit, "/images/detail"))


async def show(call: Call) -> Response:
    return answer({"image": _view(call, await _image(call, "get_image"))})


async def delete(call: Call) -> Response:
    def check(image: Image) -> None:
        rules.require(call, "delete_image", image)

    try:
        await call.service.images.delete(call.caller, call.path["image"], check)
    except Refused as why:
        raise _rejected(call, why) from None
    return nothing()


async def _image(call: Call, rule: str) -> Image:
    try:
        image = await call.service.images.find(call.caller, call.path["image"])
    except Refused as why:
        raise _rejected(call, why) from None
    rules.require(call, rule, image)
    return image


class ImageProperties(KeyValues):
    async def read(self, call: Call) -> dict[str, str]:
        return (await _image(call, "get_image")).properties

    async def change(self, call: Call, edit: EditValues) -> dict[str, str]:
        limit = await call.service.quotas.limit("metadata_items", call.caller.project_id, call.caller.user_id)

        def edited(image: Image) -> Image:
            rules.require(call, "modify_image", image)
            properties = edit(image.properties)
            check_settable(properties.keys() - image.properties.keys(), new=True)
            if not properties.keys() <= image.properties.keys() and 0 <= limit < len(properties):
                raise Refused(403, f"Image metadata limit exceeded: {len(properties)} of {limit} items")
            return msgspec.structs.replace(image, properties=properties)

        try:
            return (await call.service.images.change(call.caller, call.path["image"], edited)).properties
        except Refused as why:
            raise _rejected(call, why) from None

    def missing(self, call: Call) -> Refused:
        return Refused(404, "Invalid metadata key" if call.route.method == "DELETE" else "Metadata item was not found")


def _rejected(call: Call, why: Refused) -> Refused:
    """Return what Image refuses in Nova's words."""
    if why.status is not None:  # a policy or a limit of Compute's
        return why
    if why.code == "image_not_found":
        return Refused(404, f"Image not found: {call.path['image'][:80]}")
    return Refused(403, why.message)


# -- lists ------------------------------------------------------------------------------------------------------------


async def _page(call: Call) -> tuple[list[Image], int]:
    limit = limit_of(call)
    conditions = (*_conditions(call), *scope(call.caller))
    wanted = ListQuery(conditions, limit=limit, marker=call.query.get("marker") or None)
    rules.require(call, "get_images")
    try:
        return await call.service.images.list_(call.caller, wanted), limit
    except Refused as why:
        raise Refused(400, why.message) from None


def _conditions(call: Call) -> list[Condition]:
    query = call.query
    conditions = [Condition("hidden", EQUAL, 0)]
    if "name" in query:
        conditions.append(Condition("name", EQUAL, query["name"]))
    if "status" in query:
        conditions.append(Condition("status", EQUAL, query["status"].lower()))
    if "changes-since" in query:
        conditions.append(Condition("updated_at", AT_LEAST, time_of(query["changes-since"], "changes-since")))
    conditions += [Condition(column, EQUAL, _number(call, name)) for name, column in NUMBERS.items() if name in query]
    return conditions + [Condition(HAS_PROPERTY, EQUAL, pair) for pair in _properties(call)]


def _number(call: Call, name: str) -> int:
    number = whole_number(given := call.query[name], 10)
    if number is None or number > LARGEST:
        raise Refused(400, f"{name} must be a whole number, not {given[:40]!r}")
    return number


def _properties(call: Call) -> list[tuple[str, str]]:
    """Return the filters on properties. A server may be named by its URL."""
    pairs = [(name.removeprefix(PROPERTY), value) for name, value in call.query.items() if name.startswith(PROPERTY)]
    named = [(FILTERS[name], value) for name, value in call.query.items() if name in FILTERS]
    return pairs + [(name, value.rpartition("/")[2] if name == FILTERS["server"] else value) for name, value in named]


def _listed(call: Call, views: list[dict[str, Content]], limit: int, path: str) -> dict[str, Content]:
    return list_body(call, path, "images", views, limit)


# -- how they look ----------------------------------------------------------------------------------------------------


def _brief(call: Call, image: Image) -> dict[str, Content]:
    elsewhere = {"rel": "alternate", "type": "application/vnd.openstack.image"}
    return {
        "id": image.id,
        "name": image.name,
        "links": [*_links(call, "images", image.id), {**elsewhere, "href": _url(call, f"/image/images/{image.id}")}],
    }


def _view(call: Call, image: Image) -> dict[str, Content]:
    attributes = _brief(call, image) | {
        "minRam": image.min_ram,
        "minDisk": image.min_disk,
        "metadata": image.properties,
        "created": seconds(image.created_at),
        "updated": seconds(image.updated_at),
        "status": STATUSES.get(image.status, "UNKNOWN"),
        "progress": PROGRESS.get(image.status, 0),
        "OS-EXT-IMG-SIZE:size": image.size or 0,
    }
    server = image.properties.get("instance_uuid")
    if server is not None:
        attributes["server"] = {"id": server, "links": _links(call, "servers", server)}
    if "auto_disk_config" in image.properties:
        attributes["OS-DCF:diskConfig"] = "AUTO" if image.properties["auto_disk_config"].lower() == "true" else "MANUAL"
    return attributes


def _links(call: Call, noun: str, id_: str) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": call.url(f"/{noun}/{id_}")},
        {"rel": "bookmark", "href": _url(call, f"/compute/{noun}/{id_}")},
    ]


def _url(call: Call, path: str) -> str:
    return f"{call.service.public_url}{path}"


def _route(method: str, path: str, handler: Handler) -> Route:
    return Route(method=method, path=path, handler=handler, rule=ANY_TOKEN, until=LAST, query=ANY)


ROUTES = [
    _route("GET", "/images", list_),
    _route("GET", "/images/detail", detail),
    _route("GET", "/images/{image}", show),
    _route("DELETE", "/images/{image}", delete),
    *ImageProperties().routes(
        "/images/{image}/metadata",
        dict.fromkeys(("list", "merge", "replace", "show", "put", "remove"), ANY_TOKEN),
        schemas.ALL,
        schemas.ONE,
        until=LAST_METADATA,
        query=ANY,
    ),
]
