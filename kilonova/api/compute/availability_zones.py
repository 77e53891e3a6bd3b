"""/os-availability-zone: zones as aggregates make them, and an inner one for the workers of the control plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.server_view import microseconds
from kilonova.api.compute.services import ServiceEntry, internal_zone, read_services
from kilonova.api.content import Content
from kilonova.api.routes import Route

RULE = "os_compute_api:os-availability-zone:"


async def list_(call: Call) -> Response:
    zones, internal = _zones(await read_services(call)), internal_zone(call)
    views = [_view(zone, is_open, None) for zone, is_open in zones if zone != internal]
    return answer({"availabilityZoneInfo": views})


async def detail(call: Call) -> Response:
    services = await read_services(call)
    views = [_view(zone, is_open, _hosts(services, zone) if is_open else None) for zone, is_open in _zones(services)]
    return answer({"availabilityZoneInfo": views})


def _zones(services: Iterable[ServiceEntry]) -> list[tuple[str, bool]]:
    """Return the zones and whether they are available: one is while a service in it is enabled. Available zones come
    first."""
    enabled = {service.zone for service in services if not service.disabled}
    others = {service.zone for service in services} - enabled
    return [(zone, True) for zone in sorted(enabled)] + [(zone, False) for zone in sorted(others)]


def _hosts(services: Iterable[ServiceEntry], zone: str) -> Mapping[str, Content]:
    hosts: dict[str, dict[str, Content]] = {}
    for service in services:
        if service.zone == zone and not service.disabled:
            hosts.setdefault(service.host, {})[service.binary] = {
                "available": service.is_up,
                "active": True,
                "updated_at": microseconds(service.updated_at),
            }
    return hosts


def _view(zone: str, is_open: bool, hosts: Mapping[str, Content] | None) -> dict[str, Content]:
    return {"zoneName": zone, "zoneState": {"available": is_open}, "hosts": hosts}


ROUTES = [
    Route(method="GET", path="/os-availability-zone", handler=list_, rule=f"{RULE}list"),
    Route(method="GET", path="/os-availability-zone/detail", handler=detail, rule=f"{RULE}detail"),
]
