"""Where POST /servers asks a server to be: in a zone, on a host that is forced (`zone:host:node`), or on one that it
asks the scheduler for (2.74). The zone of its volumes counts too where servers may not reach into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.compute.services import COMPUTE, read_services
from kilonova.domain.errors import Refused
from kilonova.services.compute.hosts import read_away, read_hosts

FORCED_HOST = "os_compute_api:servers:create:forced_host"
REQUESTED_HOST = "compute:servers:create:requested_destination"


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    zone: str | None = None  # what it is pinned to
    host: str | None = None
    forced: bool = False  # no filter is asked about the host


async def destination_of(call: Call, wish: dict[str, Any]) -> Destination:
    zone, *forced = wish.get("availability_zone", "").split(":")
    if len(forced) > 2:
        raise Refused(400, "Unable to parse availability_zone; use ZONE, ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE")
    named = [name for key in ("host", "hypervisor_hostname") if (name := wish.get(key))]
    if named:
        call.require(REQUESTED_HOST)
        if any(forced):
            text = "One mechanism with host and/or hypervisor_hostname and another mechanism with zone:host:node"
            raise Refused(400, f"{text} are mutually exclusive.")
    if any(forced):
        call.require(FORCED_HOST)
    host = await _the_host(call, [name for name in (*forced, *named) if name])
    zone = zone or call.settings.default.default_schedule_zone
    if host is None and zone and not await _is_zone(call, zone):
        raise Refused(400, "The requested availability zone is not available")
    if any(forced) and (await call.service.zones.sync()).zone_of(str(host)) != zone:
        zone = ""  # it is dropped, as in Nova: the host wins
    return Destination(zone=zone or None, host=host, forced=any(forced))


def zone_with_volumes(call: Call, destination: Destination, zones: Sequence[str]) -> str | None:
    """What the server is pinned to, given the zones of its volumes."""
    if call.settings.cinder.cross_az_attach or not zones:
        return destination.zone
    if len(set(zones)) > 1:
        raise Refused(400, f"Volumes are in different availability zones: {', '.join(sorted(set(zones)))}")
    if destination.zone is None:
        return None if zones[0] == call.service.zones.default_zone else zones[0]
    check_zone_of_volume(call, destination.zone, zones[0])
    return destination.zone


def check_zone_of_volume(call: Call, zone: str, of_volume: str) -> None:
    if not call.settings.cinder.cross_az_attach and zone != of_volume:
        text = f"Server is in: {zone}. Volumes are in: {of_volume}"
        raise Refused(400, f"Server and volumes are not in the same availability zone. {text}")


async def _the_host(call: Call, names: list[str]) -> str | None:
    """A host has one hypervisor here, of the same name."""
    if not names:
        return None
    if len(set(names)) > 1:
        raise Refused(
            400, f"Compute host {names[0]} has no hypervisor {names[1]}; its hypervisor has the name of the host."
        )
    known = await read_hosts(call.db, call.engine.limits.service_down_time)
    if names[0] not in {host.name for host in known} and names[0] not in await read_away(call.db):
        raise Refused(400, f"Compute host {names[0]} could not be found.")
    return names[0]


async def _is_zone(call: Call, zone: str) -> bool:
    """One that an enabled host is in. The default zone is always one: it asks for nothing."""
    if zone == call.service.zones.default_zone:
        return True
    if any(one.zone == zone for one in await read_services(call) if one.binary == COMPUTE and not one.disabled):
        return True
    zones = await call.service.zones.sync()  # of a host whose cell is away nobody knows whether it is enabled
    return any(zones.zone_of(host) == zone for host in await read_away(call.db))
