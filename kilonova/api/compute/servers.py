"""/servers: list, show, create, change, delete."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute import server_filters
from kilonova.api.compute.schemas import servers as schemas
from kilonova.api.compute.schemas.queries import none_since
from kilonova.api.compute.server import (
    act,
    change_details,
    host_states,
    look_at_ports,
    partial_server_of,
    placed,
    server_of,
)
from kilonova.api.compute.server_create import create
from kilonova.api.compute.server_view import (
    HOST_STATUS,
    HOST_STATUS_UNKNOWN,
    ServerView,
    brief,
    find_zones,
    groups_of,
    zone_of,
)
from kilonova.api.content import Content
from kilonova.api.queries import list_body
from kilonova.api.routes import Route
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.server import SOFT_DELETED
from kilonova.operations.create.request import plain_address
from kilonova.operations.soft_delete import remove
from kilonova.services.compute.server_lists import page
from kilonova.store.server_records import ServerRecord

RULE = "os_compute_api:servers:"
SHOW = none_since(2, 75)


async def list_(call: Call) -> Response:
    records, limit = await _page(call, f"{RULE}index:get_all_tenants")
    return _answer(call, "/servers", [brief(call, record) for record in records], limit)


async def detail(call: Call) -> Response:
    records, limit = await _page(call, f"{RULE}detail:get_all_tenants")
    await look_at_ports(call, records)
    await find_zones(call, records)
    view = ServerView(call, await _hosts(call, records))
    return _answer(call, "/servers/detail", [view.whole(record) for record in records], limit)


async def _page(call: Call, all_tenants_rule: str) -> tuple[list[ServerRecord], int]:
    query = await server_filters.requested(call, all_tenants_rule)
    if query is None:
        return [], 1
    wanted, order, paging = query
    if server_filters.by_address(call):
        wanted.refresh = partial(look_at_ports, call)
    elif server_filters.by_zone(call):
        wanted.refresh = partial(find_zones, call)
    return await page(call.db, wanted, order, paging), paging.limit


def _answer(call: Call, path: str, views: list[dict[str, Content]], limit: int) -> Response:
    return answer(list_body(call, path, "servers", views, limit))


async def show(call: Call) -> Response:
    try:
        record = await server_of(call)
    except Unreachable:
        record = await partial_server_of(call)
    if record.is_partial:
        return answer({"server": ServerView(call, groups=await groups_of(call, record)).partial(record, whole=True)})
    await look_at_ports(call, [record])
    await find_zones(call, [record])
    view = ServerView(call, await _hosts(call, [record]), groups=await groups_of(call, record))
    return answer({"server": view.whole(record)})


async def _hosts(call: Call, records: list[ServerRecord]) -> Any:
    if not call.at(2, 16) or not (call.allows(HOST_STATUS) or call.allows(HOST_STATUS_UNKNOWN)):
        return {}
    return await host_states(call, records)


async def update(call: Call) -> Response:
    record = await placed(call, await server_of(call), "update")
    request = call.body["server"]
    if "pinned_availability_zone" in request:
        await find_zones(call, [record])
    columns = {"name": request["name"]} if "name" in request else {}

    def edit(details: Details) -> None:
        if "OS-DCF:diskConfig" in request:
            details.disk_config = request["OS-DCF:diskConfig"]
        for key, name in (("accessIPv4", "access_ip_v4"), ("accessIPv6", "access_ip_v6")):
            if key in request:
                setattr(details, name, plain_address(request[key]))
        if "description" in request:
            details.description = request["description"]
        if "hostname" in request:
            details.hostname = request["hostname"]
        if "pinned_availability_zone" in request:
            _pin(record, details, request["pinned_availability_zone"])

    changed = await change_details(call, record, edit, **columns)
    await look_at_ports(call, [changed])
    await find_zones(call, [changed])
    hosts = await _hosts(call, [changed]) if call.at(2, 75) else None
    view = ServerView(call, hosts, groups=await groups_of(call, changed))
    return answer({"server": view.whole(changed) if call.at(2, 75) else view.core(changed)})


def _pin(record: ServerRecord, details: Details, zone: str | None) -> None:
    """Unpin the server, or pin it to the zone that it is in. Refuse any other zone: a pin does not move a server."""
    if zone is None or zone == details.pinned_zone:
        details.pinned_zone = zone
        return
    if details.pinned_zone is not None:
        raise Refused(409, f"Instance {record.id} is pinned to {details.pinned_zone}; unpin it first")
    if zone != zone_of(record):
        raise Refused(409, f"Instance {record.id} is in {zone_of(record)}, not in {zone}")
    details.pinned_zone = zone


async def delete(call: Call) -> Response:
    """Delete the server. A server that is already soft-deleted stays as it is, with the same response."""
    if call.settings.default.reclaim_instance_interval and (await server_of(call)).vm_state == SOFT_DELETED:
        return nothing()
    return await act(call, "delete", 204, by=remove)


_ROUTES = [
    Route(method="GET", path="/servers", handler=list_, rule=f"{RULE}index", query=schemas.LIST),
    Route(method="GET", path="/servers/detail", handler=detail, rule=f"{RULE}detail", query=schemas.LIST),
    Route(method="POST", path="/servers", handler=create, rule=f"{RULE}create", body=schemas.CREATE),
    Route(method="GET", path="/servers/{server}", handler=show, rule=f"{RULE}show", query=SHOW),
    Route(method="PUT", path="/servers/{server}", handler=update, rule=f"{RULE}update", body=schemas.UPDATE),
    Route(method="DELETE", path="/servers/{server}", handler=delete, rule=f"{RULE}delete"),
]


def _of_old_clients(route: Route) -> Route:
    """Return the route under /os-volumes_boot, the name of an old extension that exists until 2.102."""
    return replace(route, path=route.path.replace("/servers", "/os-volumes_boot"), until=(2, 102))


ROUTES = [*_ROUTES, *(_of_old_clients(route) for route in _ROUTES)]
