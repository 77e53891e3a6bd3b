"""GET /resource_providers: a list by name, uuid, tree, aggregates, traits, and room for resources."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.placement.known import check_known
from kilonova.api.placement.query import PROVIDERS, provider_group
from kilonova.api.placement.view import dated
from kilonova.api.routes import Route
from kilonova.placement.candidates.search import matching
from kilonova.placement.snapshot import PlacementSnapshot, snapshot_of

WITH_TREES = (1, 14)
RELATED = (("inventories", 0), ("usages", 0), ("aggregates", 1), ("traits", 6), ("allocations", 11))


async def list_(call: Call) -> Response:
    group = provider_group(call.query, call.version)
    snapshot = snapshot_of(call.db.placement)
    await snapshot.sync(call.db.placement)
    traits = group.forbidden.union(*group.required)
    await check_known(
        call, snapshot, group.resources.keys(), traits, opening='Invalid trait(s) in "required" parameter: '
    )
    uuid, name = call.query.get("uuid"), call.query.get("name")
    places = matching(snapshot, group, uuid)
    if name:
        places = [at for at in places if snapshot.names[at] == name]
    changed = float(np.max(snapshot.updated_at[places])) if places else None
    text = f'{{"resource_providers":[{",".join(_shown(call, snapshot, places))}]}}'
    return dated(call, msgspec.Raw(text.encode()), changed)


def _shown(call: Call, snapshot: PlacementSnapshot, places: list[int]) -> Iterator[str]:
    uuids, names = snapshot.uuids, snapshot.names
    related = [name for name, since in RELATED if call.at(1, since)]
    columns = (snapshot.generation, snapshot.root, snapshot.parent)
    numbers = zip(*(column[places].tolist() for column in columns), strict=True)
    for at, (generation, root, parent) in zip(places, numbers, strict=True):
        path = f"{call.prefix}/resource_providers/{uuids[at]}"
        links = "".join(f',{{"rel":"{name}","href":"{path}/{name}"}}' for name in related)
        name = msgspec.json.encode(names[at]).decode()
        text = f'{{"uuid":"{uuids[at]}","name":{name},"generation":{generation}'
        text += f',"links":[{{"rel":"self","href":"{path}"}}{links}]'
        if call.version >= WITH_TREES:
            above = "null" if parent < 0 else f'"{uuids[parent]}"'
            text += f',"parent_provider_uuid":{above},"root_provider_uuid":"{uuids[root]}"'
        yield text + "}"


ROUTES = [
    Route(
        method="GET",
        path="/resource_providers",
        handler=list_,
        rule="placement:resource_providers:list",
        query=PROVIDERS,
    )
]
