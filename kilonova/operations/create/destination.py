"""The requested destination of a new server: a zone, a forced host (`zone:host:node`), or a host that the scheduler
checks. The zone of its volumes counts too, if servers may not use volumes of another zone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.errors import Refused
from kilonova.operations.checks.requester import Requester
from kilonova.services.compute.hosts import read_away, read_hosts

FORCED_HOST = "os_compute_api:servers:create:forced_host"
REQUESTED_HOST = "compute:servers:create:requested_destination"


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    zone: str | None = None  # the zone that it is pinned to
    host: str | None = None
    forced: bool = False  # no filter is asked about the host


async def destination_of(requester: Requester, zone: str, named: Sequence[str]) -> Destination:
    """`zone` may be ZONE:HOST:NODE; `named`: the host and the hypervisor that the scheduler shall choose."""
    zone, *forced = zone.split(":")
    if len(forced) > 2:
        raise Refused(400, "Unable to parse availability_zone; use ZONE, ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE")
    if named:
        requester.require(REQUESTED_HOST)
        if any(forced):
            text = "One mechanism with host and/or hypervisor_hostname and another mechanism with zone:host:node"
            raise Refused(400, f"{text} are mutually exclusive.")
    if any(forced):
        requester.require(FORCED_HOST)
    host = await _the_host(requester, [name for name in (*forced, *named) if name])
    zone = zone or requester.settings.default.default_schedule_zone
    if host is None and zone and not await _is_zone(requester, zone):
        raise Refused(400, "The requested availability zone is not available")
    if any(forced) and (await requester.services.zones.sync()).zone_of(str(host)) != zone:
        zone = ""  # it is dropped, as in Nova: the host wins
    return Destination(zone=zone or None, host=host, forced=any(forced))


def zone_with_volumes(requester: Requester, destination: Destination, zones: Sequence[str]) -> str | None:
    """Return the zone that the server is pinned to, given the zones of its volumes."""
    if requester.settings.cinder.cross_az_attach or not zones:
        return destination.zone
    if len(set(zones)) > 1:
        raise Refused(400, f"Volumes are in different availability zones: {', '.join(sorted(set(zones)))}")
    if destination.zone is None:
        return None if zones[0] == requester.services.zones.default_zone else zones[0]
    check_zone_of_volume(requester, destination.zone, zones[0])
    return destination.zone


def check_zone_of_volume(requester: Requester, zone: str, of_volume: str) -> None:
    if not requester.settings.cinder.cross_az_attach and zone != of_volume:
        text = f"Server is in: {zone}. Volumes are in: {of_volume}"
        raise Refused(400, f"Server and volumes are not in the same availability zone. {text}")


async def _the_host(requester: Requester, names: list[str]) -> str | None:
    """Return the named host. It has one hypervisor, of the same name."""
    if not names:
        return None
    if len(set(names)) > 1:
        raise Refused(
            400, f"Compute host {names[0]} has no hypervisor {names[1]}; its hypervisor has the name of the host."
        )
    known = await read_hosts(requester.db, requester.settings.default.service_down_time)
    if names[0] not in {host.name for host in known} and names[0] not in await read_away(requester.db):
        raise Refused(400, f"Compute host {names[0]} could not be found.")
    return names[0]


async def _is_zone(requester: Requester, zone: str) -> bool:
    """Return whether an enabled host is in the zone. The default zone always exists: it requires nothing."""
    if zone == requester.services.zones.default_zone:
        return True
    zones = await requester.services.zones.sync()
    hosts = await read_hosts(requester.db, requester.settings.default.service_down_time)
    if any(zones.zone_of(host.name) == zone for host in hosts if not host.disabled):
        return True
    # If a host's cell is unreachable, it is unknown whether the host is enabled.
    return any(zones.zone_of(host) == zone for host in await read_away(requester.db))
