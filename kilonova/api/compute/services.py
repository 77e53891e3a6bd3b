"""/os-services: the agent of each host as nova-compute, and each worker as nova-conductor and nova-scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing, notify_declared
from kilonova.api.compute.ids import RequestedId
from kilonova.api.compute.schemas import services as forms
from kilonova.api.compute.server_view import microseconds
from kilonova.api.content import Content
from kilonova.api.routes import Handler, Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.status import UNKNOWN
from kilonova.hosts.forget import forget_host
from kilonova.hosts.states import declare_down, declare_up, disable, enable, find_host
from kilonova.services.compute.hosts import (
    HostRecord,
    Worker,
    forget_worker,
    number_of,
    read_away,
    read_hosts,
    read_workers,
    service_id,
)

RULE = "os_compute_api:os-services:"
COMPUTE, CONDUCTOR, SCHEDULER = "nova-compute", "nova-conductor", "nova-scheduler"


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the service list."""

    id: str
    binary: str
    host: str
    zone: str
    is_up: bool
    updated_at: float
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False


async def read_services(call: Call) -> list[ServiceEntry]:
    workers = await read_workers(call.db, call.settings.conductor.lease_seconds)
    hosts = await read_hosts(call.db, call.settings.default.service_down_time)
    zones, internal = await call.service.zones.sync(), internal_zone(call)
    inner = [_of_worker(worker, binary, internal) for binary in (SCHEDULER, CONDUCTOR) for worker in workers]
    return inner + [of_host(host, zones.zone_of(host.name)) for host in hosts]


def internal_zone(call: Call) -> str:
    """Return the zone of the control plane's workers."""
    return call.settings.default.internal_service_availability_zone


def of_host(host: HostRecord, zone: str) -> ServiceEntry:
    return ServiceEntry(
        id=host.id,
        binary=COMPUTE,
        host=host.name,
        zone=zone,
        is_up=host.state.is_up,
        updated_at=host.last_seen,
        disabled=host.disabled,
        disabled_reason=host.disabled_reason,
        forced_down=host.forced_down,
    )


def _of_worker(worker: Worker, binary: str, zone: str) -> ServiceEntry:
    return ServiceEntry(
        id=service_id(worker, binary),
        binary=binary,
        host=f"{worker.kind}-{worker.id[:8]}",
        zone=zone,
        is_up=worker.is_up,
        updated_at=worker.renewed_at,
    )


def view(call: Call, service: ServiceEntry) -> dict[str, Content]:
    attributes: dict[str, Content] = {
        "binary": service.binary,
        "host": service.host,
        "id": service.id if call.at(2, 53) else number_of(service.id),
        "zone": service.zone,
        "status": "disabled" if service.disabled else "enabled",
        "state": "up" if service.is_up else "down",
        "updated_at": microseconds(service.updated_at),
        "disabled_reason": service.disabled_reason,
    }
    return attributes | ({"forced_down": service.forced_down} if call.at(2, 11) else {})


async def list_(call: Call) -> Response:
    wanted = {name: call.query[name] for name in ("host", "binary") if call.query.get(name)}
    services = [
        one
        for one in await read_services(call)
        if one.host == wanted.get("host", one.host) and one.binary == wanted.get("binary", one.binary)
    ]
    views = [view(call, one) for one in services]
    if call.at(2, 69) and wanted.get("binary", COMPUTE) == COMPUTE:
        away = await read_away(call.db)
        views += [_unknown(host) for host in away if host == wanted.get("host", host)]
    return answer({"services": views})


def _unknown(host: str) -> dict[str, Content]:
    """Return the service of a host whose cell does not answer."""
    return {"binary": COMPUTE, "host": host, "status": UNKNOWN}


# -- until 2.52: an action, with the host in the body -----------------------------------------------------------------


async def act(call: Call) -> Response:
    action, host, binary = call.path["service"], call.body["host"], call.body["binary"]
    attributes: dict[str, Content] = {"host": host, "binary": binary}
    if action not in ("enable", "disable", "disable-log-reason") and (action != "force-down" or not call.at(2, 11)):
        raise Refused(404, "Unknown action")
    needed = {"disable-log-reason": "disabled_reason", "force-down": "forced_down"}.get(action)
    if needed and needed not in call.body:
        raise Refused(400, f"Missing {needed} field")
    _refuse_other(binary)
    await _known(call, host, binary)
    if action == "enable":
        await enable(call.engine, host)
        attributes["status"] = "enabled"
    elif action == "force-down":
        down = is_true(call.body["forced_down"])
        attributes["forced_down"] = down
        await _force(call, host, down)
    else:
        reason = call.body["disabled_reason"] if needed else ""
        await disable(call.engine, host, reason)
        attributes |= {"status": "disabled"} | ({"disabled_reason": reason} if reason else {})
    return answer({"service": attributes})


async def _known(call: Call, host: str, binary: str) -> None:
    try:
        await find_host(call.engine, host)
    except Refused as why:
        raise Refused(404, f"Could not find binary {binary} on host {host}.") from why


# -- from 2.53 on: the service itself ---------------------------------------------------------------------------------


async def update(call: Call) -> Response:
    request, status = call.body, call.body.get("status")
    service = await _find(call)
    _refuse_other(service.binary)
    if status == "enabled" and request.get("disabled_reason"):
        raise Refused(400, "Specifying 'disabled_reason' with status 'enabled' is invalid.")
    if status is None and "forced_down" not in request:
        text = "No updates were requested. Fields 'status' or 'forced_down' should be specified."
        raise Refused(400, text)
    if "forced_down" in request:  # first: it is the one that may be refused
        await _force(call, service.host, is_true(request["forced_down"]))
    if status == "enabled":
        await enable(call.engine, service.host)
    elif status == "disabled":
        await disable(call.engine, service.host, request.get("disabled_reason", ""))
    return answer({"service": view(call, await _find(call))})


async def delete(call: Call) -> Response:
    service = await _find(call)
    if service.binary != COMPUTE:
        await _forget_worker(call, service)
        return nothing(204)
    hosts = await read_hosts(call.db, call.settings.default.service_down_time)
    for host in hosts:
        if host.id == service.id:
            await forget_host(call.engine, host.cell, host.name, host.provider_id)
    return nothing(204)


async def _forget_worker(call: Call, service: ServiceEntry) -> None:
    for worker in await read_workers(call.db, call.settings.conductor.lease_seconds):
        if service_id(worker, service.binary) == service.id and await forget_worker(call.db, worker.id):
            return
    text = f"Service {service.binary} on {service.host} is up; stop it before you delete its record."
    raise Refused(409, text)


async def _find(call: Call) -> ServiceEntry:
    wanted = RequestedId(call, call.path["service"])
    if not wanted.is_well:
        raise Refused(400, wanted.fault)
    for service in await read_services(call):
        if wanted.means(service.id):
            return service
    raise Refused(404, f"Service {wanted.given} could not be found.")


def _refuse_other(binary: str) -> None:
    if binary != COMPUTE:
        text = f"Updating a {binary} service is not supported. Only nova-compute services can be updated."
        raise Refused(400, text)


async def _force(call: Call, host: str, down: bool) -> None:
    try:
        await (declare_down if down else declare_up)(call.engine, host)
        notify_declared(call, host, down=down)
    except Refused as why:
        raise Refused(404 if why.code == "no_such_host" else 400, why.message) from why


def _route(method: str, path: str, handler: Handler, rule: str, **more: Any) -> Route:
    return Route(method=method, path=path, handler=handler, rule=RULE + rule, **more)


ROUTES = [
    _route("GET", "/os-services", list_, "list", query=forms.LIST),
    _route("PUT", "/os-services/{service}", act, "update", body=forms.ACT, until=(2, 52)),
    _route("PUT", "/os-services/{service}", update, "update", body=forms.UPDATE, since=(2, 53)),
    _route("DELETE", "/os-services/{service}", delete, "delete"),
]
