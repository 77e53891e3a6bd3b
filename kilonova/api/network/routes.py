"""The routes of Network, below /network."""

from __future__ import annotations

from kilonova.api.network import extensions, forms, quotas, routers, versions, zones
from kilonova.api.network.collection import NetworkCollection
from kilonova.api.network.tags import RecordTags
from kilonova.api.routes import ANY_TOKEN, PUBLIC, Route

QUOTA = "/v2.0/quotas/{project}"
ROUTER = "/v2.0/routers/{id}"
_COLLECTIONS = [NetworkCollection(name, path) for name, path in versions.COLLECTIONS.items()]


def tags_of(collection: NetworkCollection) -> list[Route]:
    name = collection.kind.name
    rules = {"read": f"get_{name}", "write": f"update_{name}"}
    return RecordTags(collection).routes(f"{collection.path}/{{id}}/tags", rules, forms.TAG_LIST)


ROUTES = [
    Route(method="GET", path="", handler=versions.versions, rule=PUBLIC),
    Route(method="GET", path="/v2.0", handler=versions.resources, rule=PUBLIC),
    *(route for collection in _COLLECTIONS for route in collection.routes()),
    *(route for collection in _COLLECTIONS for route in tags_of(collection)),
    Route(
        method="PUT",
        path=f"{ROUTER}/add_router_interface",
        handler=routers.add_interface,
        rule="add_router_interface",
        body=forms.INTERFACE,
    ),
    Route(
        method="PUT",
        path=f"{ROUTER}/remove_router_interface",
        handler=routers.remove_interface,
        rule="remove_router_interface",
        body=forms.INTERFACE,
    ),
    Route(method="GET", path="/v2.0/quotas", handler=quotas.list_, rule="get_quota"),
    Route(method="GET", path=QUOTA, handler=quotas.show, rule="get_quota"),
    Route(method="PUT", path=QUOTA, handler=quotas.update, rule="update_quota", body=forms.QUOTA),
    Route(method="DELETE", path=QUOTA, handler=quotas.reset, rule="delete_quota"),
    Route(method="GET", path=f"{QUOTA}/default", handler=quotas.default, rule="get_quota"),
    Route(method="GET", path=f"{QUOTA}/default.json", handler=quotas.default, rule="get_quota"),
    Route(method="GET", path=f"{QUOTA}/details", handler=quotas.details, rule="get_quota"),
    Route(method="GET", path=f"{QUOTA}/details.json", handler=quotas.details, rule="get_quota"),
    Route(method="GET", path="/v2.0/extensions", handler=extensions.list_, rule=ANY_TOKEN),
    Route(method="GET", path="/v2.0/extensions/{alias}", handler=extensions.show, rule=ANY_TOKEN),
    Route(method="GET", path="/v2.0/availability_zones", handler=zones.zones, rule="get_availability_zone"),
    Route(method="GET", path="/v2.0/agents", handler=zones.agents, rule=ANY_TOKEN),
]
