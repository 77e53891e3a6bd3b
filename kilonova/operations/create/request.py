"""Check a request for new servers. Every error that can be known is reported before anything is stored."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.guest_contents import is_mandatory
from kilonova.domain.json import Json
from kilonova.domain.network import WantedPort
from kilonova.domain.server import Flavor
from kilonova.operations.checks.contents import (
    File,
    check_files,
    check_user_data,
    find_key,
    seal_files,
    seal_user_data,
)
from kilonova.operations.checks.hardware import with_hardware
from kilonova.operations.checks.images import find_image, image_details
from kilonova.operations.checks.requester import Requester
from kilonova.operations.create.accept import NewServer, NewServers
from kilonova.operations.create.destination import Destination, destination_of, zone_with_volumes
from kilonova.operations.create.devices import SentDevice, check_devices, devices_of, disk_tags, with_local_disks
from kilonova.operations.create.disks import RequestedDisks, disks_for
from kilonova.operations.create.image_devices import devices_in, merged
from kilonova.operations.create.networks import NetworkRequest, networks_for
from kilonova.services.compute.server_groups import unknown
from kilonova.services.image.image import Image

CERTIFICATES = "os_compute_api:servers:create:trusted_certs"
MOST_AT_ONCE = 1000  # also without a quota: all of them are in one transaction


class ServerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A user's request for servers, independent of the API version."""

    name: str
    flavor: str  # its id
    image: str = ""  # its id
    least: int = 1
    most: int = 1
    zone: str = ""  # also ZONE:HOST:NODE
    hosts: list[str] = []  # the host and the hypervisor that the scheduler shall choose
    networks: NetworkRequest = None
    security_groups: list[str] = []  # names
    server_group: str | None = None
    hints: dict[str, Json] = {}
    old_devices: list[SentDevice] = []  # block_device_mapping
    devices: list[SentDevice] = []  # block_device_mapping_v2
    multiattach: bool = True  # may name volumes that several servers share
    key_name: str | None = None
    user_data: str | None = None
    files: list[File] = []
    config_drive: bool = False
    password: str = ""
    metadata: dict[str, str] = {}
    tags: list[str] = []
    description: str | None = None
    hostname: str = ""
    disk_config: str = "MANUAL"
    access_ip_v4: str = ""
    access_ip_v6: str | None = None
    certificates: list[str] | None = None
    reservation_id: str = ""


class CheckedRequest(msgspec.Struct, frozen=True, kw_only=True):
    servers: NewServers
    details: Details


async def check(requester: Requester, request: ServerRequest, *, dry: bool = False) -> CheckedRequest:
    """`dry`: make nothing, not even a default security group."""
    _check_counts(request)
    services, most = requester.services, min(request.most, MOST_AT_ONCE)
    destination = await destination_of(requester, request.zone, request.hosts)
    devices = devices_of(request.image, request.old_devices, request.devices)
    image = await _find_image(requester, request)
    if image is not None:
        devices = merged(devices, devices_in(image.properties, image.id))
    flavor = await _find_flavor(requester, request)
    check_devices(devices, flavor, requester.settings.default.max_local_block_devices)
    disks = await disks_for(requester, devices, image, flavor, most, multiattach=request.multiattach)
    _check_certificates(requester, request, disks)
    flavor = with_local_disks(with_hardware(requester, flavor, disks.image), devices)
    zone = zone_with_volumes(requester, destination, disks.zones)
    ports = await networks_for(requester, request.networks, most)
    most = await services.networks.room(requester.caller, ports, request.least, most)
    names = request.security_groups
    check_groups = services.networks.check_security_groups
    groups = await check_groups(requester.caller, names, may_make=not dry) if names else []
    await check_files(requester, request.files)
    server_group = await _find_server_group(requester, request)
    details = await _details(requester, request, disks, zone)
    details.disk_tags = disk_tags(devices, flavor)
    template = _Template(request, flavor, disks, destination, ports, groups, server_group, details)
    return CheckedRequest(
        servers=NewServers(flavor=flavor, least=request.least, most=most, make=template.servers), details=details
    )


class _Template(msgspec.Struct, frozen=True):
    """The values that the servers of one request have in common."""

    request: ServerRequest
    flavor: Flavor
    disks: RequestedDisks
    destination: Destination
    ports: list[WantedPort]
    security_groups: list[str]  # ids
    server_group: str | None
    details: Details

    def servers(self, count: int) -> list[NewServer]:
        return [self._server(n, count) for n in range(count)]

    def _server(self, n: int, count: int) -> NewServer:
        """Return one server; those of one request differ by their number."""
        disks, request = self.disks, self.request
        name = request.name if count == 1 else f"{request.name[:250]}-{n + 1}"
        hostname = self.details.hostname or hostname_from(name) or f"server-{n}"
        return NewServer(
            name=name,
            flavor=self.flavor,
            image="" if disks.volume_backed or disks.image is None else disks.image.id,
            host=self.destination.host,
            forced=self.destination.forced,
            details=msgspec.structs.replace(self.details, launch_index=n, hostname=hostname),
            networks=self.ports,
            security_groups=self.security_groups,
            volumes=disks.volumes,
            secrets={"admin_pass": request.password},
            group=self.server_group,
        )


def _check_counts(request: ServerRequest) -> None:
    """Refuse wrong counts. As many servers are made as the quotas allow, between the two counts."""
    if request.least > request.most:
        raise Refused(400, "min_count must be <= max_count")
    if request.least > MOST_AT_ONCE:
        text = f"Quota exceeded: one request makes at most {MOST_AT_ONCE} servers, not {request.least}."
        raise Refused(403, text)
    if request.most > 1 and request.hostname:
        raise Refused(400, "Cannot create multiple servers with a specific hostname.")


async def _find_flavor(requester: Requester, request: ServerRequest) -> Flavor:
    try:
        flavor = await requester.services.flavors.find(request.flavor, caller=requester.caller)
    except Refused as why:
        raise Refused(400, why.message) from None
    return flavor.shape()


async def _find_image(requester: Requester, request: ServerRequest) -> Image | None:
    if request.image:
        return await find_image(requester, request.image)
    if request.old_devices or request.devices:
        return None
    raise Refused(400, "Invalid imageRef provided.")


def _check_certificates(requester: Requester, request: ServerRequest, disks: RequestedDisks) -> None:
    if not request.certificates:
        return
    requester.require(CERTIFICATES)
    if disks.volume_backed:
        raise Refused(400, "Image certificate validation is not supported when booting from volume")


async def _find_server_group(requester: Requester, request: ServerRequest) -> str | None:
    """Return the id of the requested group; it must be of the caller's own project."""
    if request.server_group is None:
        return None
    try:
        group = await requester.services.server_groups.find(request.server_group)
    except Refused as why:
        raise Refused(400, why.message) from None
    if group.project_id != requester.caller.project_id:
        raise Refused(400, unknown(request.server_group).message)
    return group.id


async def _details(requester: Requester, request: ServerRequest, disks: RequestedDisks, zone: str | None) -> Details:
    public_key = None if request.key_name is None else await find_key(requester, request.key_name)
    if request.user_data is not None:
        check_user_data(request.user_data)
    await requester.services.quotas.check_metadata(requester.caller, len(request.metadata))
    image, engine = disks.image, requester.engine
    return Details(
        metadata=request.metadata,
        tags=list(dict.fromkeys(request.tags)),
        description=request.description,
        hostname=request.hostname,
        key_name=request.key_name,
        public_key=public_key,
        user_data=seal_user_data(engine, request.user_data),
        personality=seal_files(engine, request.files),
        config_drive=_needs_config_drive(requester, request, image),
        disk_config=request.disk_config,
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=plain_address(request.access_ip_v6),
        availability_zone=zone,
        pinned_zone=zone,
        reservation_id=request.reservation_id,
        security_groups=request.security_groups or ["default"],
        **(image_details(image) if image is not None else {}),
        volume_backed=disks.volume_backed,
        trusted_image_certificates=request.certificates,
        scheduler_hints={name: value if isinstance(value, list) else [value] for name, value in request.hints.items()},
    )


def _needs_config_drive(requester: Requester, request: ServerRequest, image: Image | None) -> bool:
    """Return whether the request, the operator or the image asks for one."""
    is_requested = request.config_drive or requester.settings.default.force_config_drive
    return is_requested or (image is not None and is_mandatory(image.properties))


def plain_address(address: str | None) -> str:
    """Return the shortest form: one address, one text."""
    return str(ipaddress.ip_address(address)) if address else ""


def hostname_from(name: str) -> str:
    """Make a label that DNS takes from a name that people chose."""
    label = re.sub(r"[^a-z0-9-]", "", re.sub(r"[ _.]", "-", name.lower()))
    return label.strip("-")[:63].strip("-")
