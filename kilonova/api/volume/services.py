"""The services of Volume for administrators: /os-services, /os-hosts, the pools; and, for all users, the only zone."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.routes import ANY_TOKEN, Handler, Route
from kilonova.api.volume import forms
from kilonova.api.volume.query import is_requested
from kilonova.api.volume.volume_view import time_text
from kilonova.domain.errors import Refused
from kilonova.services.volume.backends import POOL
from kilonova.services.volume.volume import ZONE

RULE = "volume_extension:services:"
VOLUME, SCHEDULER = "cinder-volume", "cinder-scheduler"
CONTROL_HOST = "kilonova"  # the process that accepts a request chooses the backend; there is no scheduler process


STORAGE = {
    "volume_backend_name": POOL,
    "vendor_name": "Open Source",
    "driver_version": "1.0",
    "storage_protocol": "kilonova",
}


class VolumeServiceEntry(NamedTuple):
    binary: str
    host: str
    disabled: bool
    disabled_reason: str | None
    is_up: bool
    seen_at: float


async def read_services(call: Call) -> list[VolumeServiceEntry]:
    backends = await call.service.volumes.backends.all()
    volumes = [
        VolumeServiceEntry(VOLUME, one.host, one.disabled, one.disabled_reason, one.is_up, one.seen_at)
        for one in backends
    ]
    return [VolumeServiceEntry(SCHEDULER, CONTROL_HOST, False, None, True, call.now), *volumes]


async def list_(call: Call) -> Response:
    """List the services. A host without a backend in its name matches all its backends."""
    host, binary = call.query.get("host", ""), call.query.get("binary", "")
    services = [
        one
        for one in await read_services(call)
        if binary in ("", one.binary) and host in ("", one.host, one.host.partition("@")[0])
    ]
    return answer({"services": [_service(call, one) for one in services]})


def _service(call: Call, one: VolumeServiceEntry) -> dict[str, Content]:
    view: dict[str, Content] = {
        "binary": one.binary,
        "host": one.host,
        "zone": ZONE,
        "status": "disabled" if one.disabled else "enabled",
        "state": "up" if one.is_up else "down",
        "updated_at": time_text(one.seen_at),
        "disabled_reason": one.disabled_reason,
    }
    if call.at(3, 7):
        view["cluster"] = None
    if one.binary == VOLUME:
        view |= {"replication_status": "disabled", "active_backend_id": None, "frozen": False}
        if call.at(3, 49):
            view["backend_state"] = "up" if one.is_up else "down"
    return view


# Cinder has these actions, so their routes exist; the requests cannot be fulfilled here.
OF_CINDER = ("freeze", "thaw", "failover", "failover_host", "set-log", "get-log")


async def refuse_action(call: Call) -> Response:
    """Name the action, whatever its body is: those that are not offered (failover, get-log) have other bodies."""
    verb = call.path["verb"]
    status = 400 if verb in OF_CINDER else 404
    raise Refused(status, f"Unknown action {verb[:40]!r}: this API has enable, disable and disable-log-reason.")


async def enable(call: Call) -> Response:
    return await _set_disabled(call, "enable")


async def disable(call: Call) -> Response:
    return await _set_disabled(call, "disable")


async def disable_with_reason(call: Call) -> Response:
    if not call.body.get("disabled_reason"):
        raise Refused(400, "disabled_reason must be given.")
    return await _set_disabled(call, "disable-log-reason")


async def _set_disabled(call: Call, verb: str) -> Response:
    body = call.body
    reason = body.get("disabled_reason")
    binary, host = body.get("binary") or body["service"], body["host"]
    known = {(one.binary, one.host) for one in await read_services(call)}
    if (binary, host) not in known:
        raise Refused(404, f"Service {binary[:80]} could not be found on host {host[:80]}.")
    if binary != VOLUME:
        raise Refused(400, f"{binary} on {host} is a part of the API and cannot be disabled.")
    disabled = verb != "enable"
    await call.service.volumes.backends.set_disabled(host, disabled, reason if verb == "disable-log-reason" else None)
    view = {"host": host, "service": binary, "binary": binary, "disabled": disabled}
    view["status"] = "disabled" if disabled else "enabled"
    return answer(view | ({} if verb == "disable" else {"disabled_reason": reason if disabled else None}))


async def hosts(call: Call) -> Response:
    views = [
        {
            "host_name": one.host,
            "service": one.binary,
            "zone": ZONE,
            "service-status": "available" if one.is_up else "unavailable",
            "service-state": "disabled" if one.disabled else "enabled",
            "last-update": time_text(one.seen_at),
        }
        for one in await read_services(call)
    ]
    return answer({"hosts": views})


async def host(call: Call) -> Response:
    """Show the usage of a host, in total and by project."""
    backends = [one for one in await call.service.volumes.backends.all() if one.host == call.path["host"]]
    if not backends:
        raise Refused(404, f"Host {call.path['host'][:80]} could not be found.")
    held = await call.service.volumes.backends.held(backends[0].id)
    return answer({"host": [{"resource": {"host": backends[0].host, **one}} for one in held]})


async def pools(call: Call) -> Response:
    backends = await call.service.volumes.backends.all()
    if not is_requested(call, "detail"):
        return answer({"pools": [{"name": one.pool} for one in backends]})
    views = []
    for one in backends:
        pool_capabilities = {
            **STORAGE,
            "total_capacity_gb": one.total_gb,
            "free_capacity_gb": one.free_gb,
            "reserved_percentage": 0,
            "QoS_support": False,
            "multiattach": True,
            "thin_provisioning_support": True,
            "timestamp": time_text(one.seen_at),
            "backend_state": "up" if one.is_up else "down",
        }
        views.append({"name": one.pool, "capabilities": pool_capabilities})
    return answer({"pools": views})


async def capabilities(call: Call) -> Response:
    """Show the capabilities of a backend or of its pool that a type can require."""
    wanted = call.path["host"].partition("#")[0]
    if wanted not in {one.host for one in await call.service.volumes.backends.all()}:
        raise Refused(404, f"Host {wanted[:80]} could not be found.")
    return answer(
        {
            **STORAGE,
            "namespace": f"OS::Storage::Capabilities::{call.path['host']}",
            "pool_name": None,
            "display_name": None,
            "description": None,
            "visibility": None,
            "replication_targets": [],
            "properties": {},
        }
    )


async def zones(call: Call) -> Response:
    return answer({"availabilityZoneInfo": [{"zoneName": ZONE, "zoneState": {"available": True}}]})


def _action(verb: str, handler: Handler) -> Route:
    return Route(
        method="PUT", path=f"/os-services/{verb}", handler=handler, rule=f"{RULE}update", body=forms.SET_SERVICE
    )


ROUTES = [
    Route(method="GET", path="/os-services", handler=list_, rule=f"{RULE}index"),
    _action("enable", enable),
    _action("disable", disable),
    _action("disable-log-reason", disable_with_reason),
    Route(method="PUT", path="/os-services/{verb}", handler=refuse_action, rule=f"{RULE}update"),
    Route(method="GET", path="/os-hosts", handler=hosts, rule="volume_extension:hosts"),
    Route(method="GET", path="/os-hosts/{host}", handler=host, rule="volume_extension:hosts"),
    Route(
        method="GET",
        path="/scheduler-stats/get_pools",
        handler=pools,
        rule="scheduler_extension:scheduler_stats:get_pools",
    ),
    Route(method="GET", path="/capabilities/{host}", handler=capabilities, rule="volume_extension:capabilities"),
    Route(method="GET", path="/os-availability-zone", handler=zones, rule=ANY_TOKEN),
]
