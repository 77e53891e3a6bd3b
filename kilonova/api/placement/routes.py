"""Reading the ledger: resource providers, their inventories, usages and allocations."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.placement.manner import NEWEST, text_of
from kilonova.api.rejected import Rejected
from kilonova.api.routes import PUBLIC, Route
from kilonova.placement import reading
from kilonova.world import Row

RULE = "placement:"
PROVIDER = "/resource_providers/{provider}"
LINKED = ("inventories", "usages", "allocations")
INVENTORY = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


async def versions(call: Call) -> Response:
    spoken = {"min_version": text_of(NEWEST), "max_version": text_of(NEWEST), "id": "v1.0", "status": "CURRENT"}
    return answer({"versions": [{**spoken, "links": [{"rel": "self", "href": ""}]}]})


async def list_(call: Call) -> Response:
    if unknown := set(call.query) - {"name", "uuid"}:
        raise Rejected(400, f"Invalid query string parameters: {', '.join(sorted(unknown))[:200]}")
    found = await reading.providers(call.db.placement)
    chosen = [row for row in found if all(row[name] == call.query[name] for name in call.query)]
    return answer({"resource_providers": [_shown(row) for row in chosen]})


async def show(call: Call) -> Response:
    return answer(_shown(await _provider(call)))


async def inventories(call: Call) -> Response:
    provider = await _provider(call)
    found = await reading.inventory(call.db.placement, provider["id"])
    shown = {row["name"]: {field: row[field] for field in INVENTORY} for row in found}
    return answer({"inventories": shown, "resource_provider_generation": provider["generation"]})


async def usages(call: Call) -> Response:
    provider = await _provider(call)
    found = await reading.inventory(call.db.placement, provider["id"])
    used = {row["name"]: row["used"] for row in found}
    return answer({"usages": used, "resource_provider_generation": provider["generation"]})


async def provider_allocations(call: Call) -> Response:
    provider = await _provider(call)
    found: dict[str, Any] = {}
    for row in await reading.of_provider(call.db.placement, provider["id"]):
        _add(found.setdefault(row["consumer"], {"resources": {}})["resources"], row)
    return answer({"allocations": found, "resource_provider_generation": provider["generation"]})


async def consumer_allocations(call: Call) -> Response:
    found: dict[str, Any] = {}
    for row in await reading.of_consumer(call.db.placement, call.path["consumer"]):
        of = found.setdefault(row["uuid"], {"generation": row["generation"], "resources": {}})
        _add(of["resources"], row)
    return answer({"allocations": found})


def _add(resources: dict[str, int], row: Row) -> None:
    """An evacuated server may hold a class twice at one provider: once for itself, once for the evacuation."""
    resources[row["name"]] = resources.get(row["name"], 0) + row["used"]


async def _provider(call: Call) -> Row:
    found = await reading.provider(call.db.placement, call.path["provider"])
    if found is None:
        raise Rejected(404, f"No resource provider with uuid {call.path['provider'][:60]} found")
    return found


def _shown(row: Row) -> dict[str, Any]:
    path = f"/placement/resource_providers/{row['uuid']}"
    links = [{"rel": "self", "href": path}, *({"rel": name, "href": f"{path}/{name}"} for name in LINKED[:2])]
    return {"uuid": row["uuid"], "name": row["name"], "generation": row["generation"], "links": links}


ROUTES = [
    Route(method="GET", path="/", handler=versions, rule=PUBLIC),
    Route(method="GET", path="/resource_providers", handler=list_, rule=f"{RULE}resource_providers:list"),
    Route(method="GET", path=PROVIDER, handler=show, rule=f"{RULE}resource_providers:show"),
    Route(
        method="GET",
        path=f"{PROVIDER}/inventories",
        handler=inventories,
        rule=f"{RULE}resource_providers:inventories:list",
    ),
    Route(method="GET", path=f"{PROVIDER}/usages", handler=usages, rule=f"{RULE}resource_providers:usages"),
    Route(
        method="GET",
        path=f"{PROVIDER}/allocations",
        handler=provider_allocations,
        rule=f"{RULE}resource_providers:allocations:list",
    ),
    Route(method="GET", path="/allocations/{consumer}", handler=consumer_allocations, rule=f"{RULE}allocations:list"),
]
