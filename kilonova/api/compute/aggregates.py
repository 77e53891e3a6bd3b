"""/os-aggregates: groups of hosts with metadata; one that has a zone makes its hosts that zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.schemas import aggregates as forms
from kilonova.api.compute.schemas.types import MAX_INT
from kilonova.api.compute.server_view import microseconds
from kilonova.api.content import Content
from kilonova.api.routes import Handler, Route
from kilonova.bus import in_cell, question_subject
from kilonova.domain.errors import Refused
from kilonova.domain.image_bytes import ImageOrder
from kilonova.domain.messages import CacheOrder
from kilonova.engine.tickets import issue_for_cache
from kilonova.hosts import aggregates as hosting
from kilonova.schema.tables.control import host_mappings
from kilonova.services.compute.aggregates import ZONE, Aggregate
from kilonova.store import rows
from kilonova.world import Tx

RULE = "os_compute_api:os-aggregates:"
OF_BAD_VALUES = frozenset({"zone_conflict", "zone_inhabited"})  # 400 where metadata is set, 409 where a host moves


async def list_(call: Call) -> Response:
    return answer({"aggregates": [view(call, one) for one in await call.service.aggregates.all()]})


async def show(call: Call) -> Response:
    return _shown(call, await call.service.aggregates.find(_id(call)))


async def create(call: Call) -> Response:
    request = call.body["aggregate"]
    aggregate = await call.service.aggregates.create(request["name"], request.get("availability_zone"))
    attributes = view(call, aggregate)
    return answer({"aggregate": {key: value for key, value in attributes.items() if key not in ("hosts", "metadata")}})


async def update(call: Call) -> Response:
    request = call.body["aggregate"]
    zone = {ZONE: request["availability_zone"]} if "availability_zone" in request else None
    return _shown(call, await _change(call, name=request.get("name"), metadata=zone))


async def delete(call: Call) -> Response:
    await call.service.aggregates.delete(_id(call))
    return nothing(200)


async def add_host(call: Call) -> Response:
    service, host = call.service.aggregates, call.body["add_host"]["host"]
    return _shown(call, await hosting.add_host(call.engine, service, _id(call), host))


async def remove_host(call: Call) -> Response:
    service, host = call.service.aggregates, call.body["remove_host"]["host"]
    return _shown(call, await hosting.remove_host(call.engine, service, _id(call), host))


async def set_metadata(call: Call) -> Response:
    return _shown(call, await _change(call, metadata=call.body["set_metadata"]["metadata"]))


async def cache_images(call: Call) -> Response:
    """Ask the hosts of the aggregate to fetch images. A host that misses the message fetches an image on first use."""
    images = [one["id"] for one in call.body["cache"]]
    if len(set(images)) < len(images):
        raise Refused(400, f"Duplicate images in request: {len(images)} were given, {len(set(images))} are different")
    aggregate = await call.service.aggregates.find(_id(call))
    service, now = call.engine.world.image, call.engine.world.clock.now()
    contents = {} if service is None else {image: await service.content(image) for image in images}
    cells = await _cells_of(call, aggregate.hosts)
    for host in aggregate.hosts:
        orders = [
            ImageOrder(image=image, token=issue_for_cache(call.engine.seal, host, image, now), content=content)
            for image, content in contents.items()
            if content is not None
        ]
        subject = in_cell(call.db.bus_prefix(cells.get(host, "")), question_subject(host))
        await call.engine.world.bus.cast(subject, msgspec.json.encode(CacheOrder(images, orders)))
    return nothing(202)


async def _cells_of(call: Call, hosts: Sequence[str]) -> dict[str, str]:
    async def body(tx: Tx) -> dict[str, str]:
        mappings = [await rows.fetch(tx, host_mappings, host=host) for host in hosts]
        return {row["host"]: row["cell"] for row in mappings if row is not None}

    return await call.db.control.read(body)


async def _change(call: Call, **values: Any) -> Aggregate:
    try:
        return await hosting.change(call.engine, call.service.aggregates, _id(call), **values)
    except Refused as why:
        if why.code in OF_BAD_VALUES:
            raise Refused(400, why.message) from None
        raise


def _id(call: Call) -> int:
    """Return the id in the path. A negative number is valid, but no aggregate has it."""
    given = call.path["aggregate"]
    if not re.fullmatch(r"-?[0-9]{1,10}", given) or abs(int(given)) > MAX_INT:
        raise Refused(400, f"Invalid input received: aggregate id must be a whole number, not {given[:80]}")
    return int(given)


def _shown(call: Call, aggregate: Aggregate) -> Response:
    return answer({"aggregate": view(call, aggregate)})


def view(call: Call, aggregate: Aggregate) -> dict[str, Content]:
    attributes: dict[str, Content] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": list(aggregate.hosts),
        "metadata": aggregate.metadata,
        "created_at": microseconds(aggregate.created_at),
        "updated_at": None if aggregate.updated_at is None else microseconds(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    return attributes | ({"uuid": aggregate.uuid} if call.at(2, 41) else {})


def _route(method: str, path: str, handler: Handler, rule: str, **more: Any) -> Route:
    return Route(method=method, path=f"/os-aggregates{path}", handler=handler, rule=RULE + rule, **more)


def _action(key: str, handler: Handler, form: Any) -> Route:
    return _route("POST", "/{aggregate}/action", handler, key, body=form, action=key)


ROUTES = [
    _route("GET", "", list_, "index"),
    _route("POST", "", create, "create", body=forms.CREATE),
    _route("GET", "/{aggregate}", show, "show"),
    _route("PUT", "/{aggregate}", update, "update", body=forms.UPDATE),
    _route("DELETE", "/{aggregate}", delete, "delete"),
    _action("add_host", add_host, forms.ADD_HOST),
    _action("remove_host", remove_host, forms.REMOVE_HOST),
    _action("set_metadata", set_metadata, forms.SET_METADATA),
    Route(
        method="POST",
        path="/os-aggregates/{aggregate}/images",
        handler=cache_images,
        rule="compute:aggregates:images",
        body=forms.CACHE,
        since=(2, 81),
    ),
]
