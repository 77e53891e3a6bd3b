"""Allocations: of a consumer, of a provider; one consumer's or several consumers' are written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from starlette.responses import Response

from kilonova.api.call import Call, nothing
from kilonova.api.content import Content
from kilonova.api.placement.allocation_forms import MANY, ONE
from kilonova.api.placement.view import PROVIDER, dated
from kilonova.api.reading import is_uuid
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.placement import reading, writing
from kilonova.placement.consumers import NOBODY, UNKNOWN
from kilonova.placement.refusals import ClaimRefused
from kilonova.placement.writing import ANY, AllocationRequest
from kilonova.world import Row

AS_OBJECT, WITH_GENERATION, WITH_TYPE = (1, 12), (1, 28), (1, 38)


async def of_consumer(call: Call) -> Response:
    consumer, rows = await reading.of_consumer(call.db.placement, call.path["consumer"])
    generations = {row["uuid"]: row["generation"] for row in rows}
    by_provider: dict[str, Content] = {
        uuid: {"generation": generations[uuid], "resources": resources}
        for uuid, resources in _resources(rows, "uuid").items()
    }
    content: dict[str, Content] = {"allocations": by_provider}
    if consumer is None or not rows:
        return dated(call, content)
    if call.version >= AS_OBJECT:
        content |= {"project_id": consumer.project_id, "user_id": consumer.user_id}
    if call.version >= WITH_GENERATION:
        content["consumer_generation"] = consumer.generation
    if call.version >= WITH_TYPE:
        content["consumer_type"] = consumer.type_name or UNKNOWN
    return dated(call, content, consumer.updated_at)


async def of_provider(call: Call) -> Response:
    provider, rows = await reading.of_provider(call.db.placement, call.path["provider"])
    generations = {row["consumer"]: row["consumer_generation"] for row in rows}
    by_consumer: dict[str, Content] = {}
    for consumer, resources in _resources(rows, "consumer").items():
        generation = {"consumer_generation": generations[consumer]} if call.version >= WITH_GENERATION else {}
        by_consumer[consumer] = {"resources": resources, **generation}
    content = {"allocations": by_consumer, "resource_provider_generation": provider.generation}
    return dated(call, content, provider.updated_at)


def _resources(rows: Sequence[Row], by: str) -> dict[str, dict[str, int]]:
    """Return the amounts by class, for each value of a column. An evacuated server may hold a class twice at one
    provider: for itself and for the evacuation."""
    resources: dict[str, dict[str, int]] = {}
    for row in rows:
        amounts = resources.setdefault(row[by], {})
        amounts[row["name"]] = amounts.get(row["name"], 0) + row["used"]
    return resources


async def replace(call: Call) -> Response:
    consumer = call.path["consumer"]
    if not is_uuid(consumer):
        raise Refused(400, f"Malformed consumer_uuid: {consumer[:300]}")
    return await _write(call, [allocation_request(call, str(UUID(consumer)), call.body)])


async def replace_many(call: Call) -> Response:
    return await _write(call, [allocation_request(call, consumer, body) for consumer, body in call.body.items()])


async def _write(call: Call, requests: list[AllocationRequest]) -> Response:
    try:
        await writing.replace(call.db.placement, requests, call.caller.user_id)
    except ClaimRefused as why:
        raise refused(why) from None
    return nothing()


async def delete(call: Call) -> Response:
    consumer = call.path["consumer"]
    if not await writing.drop(call.db.placement, consumer, call.caller.user_id):
        raise Refused(404, f"No allocations for consumer '{consumer[:300]}'")
    return nothing()


def allocation_request(call: Call, consumer: str, body: Mapping[str, Any]) -> AllocationRequest:
    allocations = body["allocations"]
    if isinstance(allocations, list):  # before 1.12
        wanted = {each["resource_provider"]["uuid"]: _whole(each["resources"]) for each in allocations}
    else:
        wanted = {provider: _whole(each["resources"]) for provider, each in allocations.items()}
    generation = body["consumer_generation"] if call.version >= WITH_GENERATION else ANY
    project, user = body.get("project_id", NOBODY), body.get("user_id", NOBODY)
    return AllocationRequest(consumer, wanted, project, user, generation, body.get("consumer_type"))


def _whole(resources: dict[str, int]) -> dict[str, int]:
    """Return the amounts as integers: in JSON 8.0 is as whole as 8."""
    return {name: int(amount) for name, amount in resources.items()}


def refused(why: ClaimRefused) -> Refused:
    """Return the error of a refused claim. Insufficient capacity is a 409 without a dedicated error code."""
    more = " The requested amount would exceed the capacity." if why.code == "over_capacity" else ""
    return Refused(409, f"Unable to allocate inventory: {why.message}.{more}")


RULE = "placement:allocations"
PATH = "/allocations/{consumer}"
ROUTES = [
    Route(method="GET", path=PATH, handler=of_consumer, rule=f"{RULE}:list"),
    Route(method="PUT", path=PATH, handler=replace, rule=f"{RULE}:update", body=ONE),
    Route(method="DELETE", path=PATH, handler=delete, rule=f"{RULE}:delete"),
    Route(method="POST", path="/allocations", handler=replace_many, rule=f"{RULE}:manage", since=(1, 13), body=MANY),
    Route(
        method="GET",
        path=f"{PROVIDER}/allocations",
        handler=of_provider,
        rule="placement:resource_providers:allocations:list",
    ),
]
