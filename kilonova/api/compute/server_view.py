"""A server as each microversion shows it. Tempest's schemas are closed: no field may appear before its version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from kilonova.api.call import Call
from kilonova.api.content import Content
from kilonova.api.routes import Version
from kilonova.domain.details import Details
from kilonova.domain.errors import Failed
from kilonova.domain.host import HostState
from kilonova.domain.status import UNKNOWN, WITH_FAULT, WITH_PROGRESS, status_of
from kilonova.store.server_records import ServerRecord

ATTRIBUTES = "OS-EXT-SRV-ATTR:"
EXTENDED = "os_compute_api:os-extended-server-attributes"
EXTRA_SPECS = "os_compute_api:servers:show:flavor-extra-specs"
HOST_STATUS = "os_compute_api:servers:show:host_status"
HOST_STATUS_UNKNOWN = "os_compute_api:servers:show:host_status:unknown-only"
WOULD_FIT = "kilonova:servers:show:would_fit"


# The version that added a field, and its value in a server's details.
BY_VERSION: list[tuple[Version, str, Callable[[Details], Any]]] = [
    ((2, 9), "locked", lambda details: details.locked_by is not None),
    ((2, 19), "description", attrgetter("description")),
    ((2, 26), "tags", attrgetter("tags")),
    ((2, 63), "trusted_image_certificates", attrgetter("trusted_image_certificates")),
    ((2, 73), "locked_reason", attrgetter("locked_reason")),
    ((2, 90), f"{ATTRIBUTES}hostname", attrgetter("hostname")),
    ((2, 96), "pinned_availability_zone", attrgetter("pinned_zone")),
    ((2, 100), "scheduler_hints", attrgetter("scheduler_hints")),
]


# Times are left to the encoder where it writes them as Nova does: isoformat takes longer than all else, and a list of a
# thousand servers has three thousand of them.


def seconds(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(int(at), UTC)


def microseconds(at: float | None) -> datetime | str | None:
    if at is None:
        return None
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    return moment if moment.microsecond else moment.isoformat(timespec="microseconds")


@lru_cache(maxsize=10_000)
def host_id(project_id: str, host: str) -> str:
    """Return a hash that shows owners whether two of their servers share a host, and nothing else to anyone."""
    return hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def links(call: Call, record: ServerRecord) -> list[dict[str, str]]:
    return [
        {"rel": "self", "href": call.url(f"/servers/{record.id}")},
        {"rel": "bookmark", "href": f"{call.service.public_url}/compute/servers/{record.id}"},
    ]


def brief(call: Call, record: ServerRecord) -> dict[str, Content]:
    if record.is_partial:
        return {"id": record.id, "status": UNKNOWN, "links": links(call, record)}
    return {"id": record.id, "name": record.name, "links": links(call, record)}


def addresses(record: ServerRecord, *, whole: bool) -> dict[str, list[dict[str, Content]]]:
    networks: dict[str, list[dict[str, Content]]] = {}
    for vif in record.vifs:
        entries = networks.setdefault(vif.network_name, [])
        for address in vif.addresses:
            one: dict[str, Content] = {"version": address.version, "addr": address.address}
            if whole:
                one |= {"OS-EXT-IPS:type": address.kind, "OS-EXT-IPS-MAC:mac_addr": vif.mac}
            entries.append(one)
    return networks


async def groups_of(call: Call, record: ServerRecord) -> list[str]:
    """Return the ids of the server's groups. A server without a hint never joined one."""
    if not call.at(2, 71) or not record.details.scheduler_hints.get("group"):
        return []
    group = await call.service.server_groups.of_server(record.id)
    return [] if group is None else [group.id]


class ServerView:
    """The view of servers for one response. Version and policy are checked once per response, not for every server."""

    def __init__(
        self, call: Call, hosts: Mapping[str, HostState] | None = None, *, groups: list[str] | None = None
    ) -> None:
        self.call = call
        self.groups = groups  # of a single server; lists leave them out
        self.hosts = hosts or {}
        self.by_version = [(name, value) for since, name, value in BY_VERSION if call.at(*since)]
        self.shows_attributes = call.allows(EXTENDED)
        self.shows_extra_specs = call.at(2, 47) and call.allows(EXTRA_SPECS)
        self.shows_host_status = call.at(2, 16) and call.allows(HOST_STATUS)
        self.shows_unknown_host = call.at(2, 16) and call.allows(HOST_STATUS_UNKNOWN)
        self.shows_would_fit = call.allows(WOULD_FIT)
        self.is_admin = call.caller.is_admin

    def whole(self, record: ServerRecord) -> dict[str, Content]:
        """Return the server as in show and detail."""
        if record.is_partial:
            return self.partial(record)
        attributes = self.core(record, whole=True)
        attributes |= self._states(record)
        attributes |= self._rest(record)
        return attributes

    def partial(self, record: ServerRecord, *, whole: bool = False) -> dict[str, Content]:
        """Return a server whose cell does not answer. `whole`: include the attributes of its create request."""
        attributes: dict[str, Content] = {
            "id": record.id,
            "status": UNKNOWN,
            "tenant_id": record.project_id,
            "created": seconds(record.created_at),
            "links": links(self.call, record),
        }
        if not whole:
            return attributes
        zone = record.details.availability_zone or record.details.pinned_zone
        attributes |= {
            "user_id": record.user_id,
            "image": self._image(record),
            "flavor": self._flavor(record),
            "OS-EXT-AZ:availability_zone": zone or UNKNOWN,
            "OS-EXT-STS:power_state": record.power_state,
        }
        return attributes | ({"server_groups": self.groups} if self.call.at(2, 71) else {})

    def core(self, record: ServerRecord, *, whole: bool = False) -> dict[str, Content]:
        """Return the attributes that update and rebuild show too. Before 2.75 they show no others, and less of the
        addresses."""
        call, details = self.call, record.details
        status = status_of("deleted" if record.deleted else record.vm_state, record.task_state)
        attributes: dict[str, Content] = {
            "id": record.id,
            "name": record.name,
            "status": status,
            "tenant_id": record.project_id,
            "user_id": record.user_id,
            "metadata": details.metadata,
            "hostId": host_id(record.project_id, record.host) if record.host else "",
            "image": self._image(record),
            "flavor": self._flavor(record),
            "created": seconds(record.created_at),
            "updated": seconds(record.updated_at),
            "addresses": {} if record.vm_state == "building" else addresses(record, whole=whole),
            "accessIPv4": details.access_ip_v4,
            "accessIPv6": details.access_ip_v6,
            "links": links(call, record),
            "OS-DCF:diskConfig": details.disk_config,
        }
        if status in WITH_PROGRESS:
            attributes["progress"] = 0
        if status in WITH_FAULT and record.fault is not None:
            attributes["fault"] = self._fault(record)
        for name, value in self.by_version:
            attributes[name] = value(details)
        if self.groups is not None and call.at(2, 71):
            attributes["server_groups"] = self.groups
        return attributes

    def _states(self, record: ServerRecord) -> dict[str, Content]:
        return {
            "OS-EXT-STS:task_state": record.task_state,
            "OS-EXT-STS:vm_state": record.vm_state,
            "OS-EXT-STS:power_state": record.power_state,
            "OS-SRV-USG:launched_at": microseconds(record.launched_at),
            "OS-SRV-USG:terminated_at": microseconds(record.terminated_at),
            "OS-EXT-AZ:availability_zone": zone_of(record),
        }

    def _rest(self, record: ServerRecord) -> dict[str, Content]:
        details = record.details
        attributes: dict[str, Content] = {
            "config_drive": "True" if details.config_drive else "",
            "key_name": details.key_name,
            "os-extended-volumes:volumes_attached": self._volumes(record),
        }
        groups = dict.fromkeys(name for vif in record.vifs for name in vif.security_groups)
        if groups or (record.vm_state == "building" and details.security_groups):
            attributes["security_groups"] = [{"name": name} for name in (groups or details.security_groups)]
        if self.shows_attributes:
            attributes |= self._attributes(record)
        if self.shows_host_status or self.shows_unknown_host:
            status = host_status(record, self.hosts)
            if self.shows_host_status or status == "UNKNOWN":
                attributes["host_status"] = status
        return attributes

    def _volumes(self, record: ServerRecord) -> list[dict[str, Content]]:
        if not self.call.at(2, 3):
            return [{"id": one.volume_id} for one in record.volumes]
        return [{"id": one.volume_id, "delete_on_termination": one.delete_on_termination} for one in record.volumes]

    def _attributes(self, record: ServerRecord) -> dict[str, Content]:
        details = record.details
        attributes: dict[str, Content] = {
            f"{ATTRIBUTES}host": record.host,
            f"{ATTRIBUTES}hypervisor_hostname": record.host,
            f"{ATTRIBUTES}instance_name": f"instance-{record.id[:8]}",
        }
        if self.call.at(2, 3):
            attributes |= {
                f"{ATTRIBUTES}reservation_id": details.reservation_id,
                f"{ATTRIBUTES}launch_index": details.launch_index,
                f"{ATTRIBUTES}hostname": details.hostname,
                f"{ATTRIBUTES}kernel_id": "",
                f"{ATTRIBUTES}ramdisk_id": "",
                f"{ATTRIBUTES}root_device_name": details.root_device_name,
                f"{ATTRIBUTES}user_data": self.user_data(record),
            }
        return attributes

    def user_data(self, record: ServerRecord) -> str | None:
        """Return the user data; None if there is none or if it was encrypted with a key that is lost."""
        sealed = record.details.user_data
        try:
            return None if sealed is None else self.call.engine.seal.open_text(sealed)
        except Failed:
            return None

    def _image(self, record: ServerRecord) -> Any:
        if not record.image_ref:
            return ""  # booted from a volume
        href = f"{self.call.service.public_url}/compute/images/{record.image_ref}"
        attributes: dict[str, Content] = {"id": record.image_ref, "links": [{"rel": "bookmark", "href": href}]}
        if self.call.at(2, 98):
            attributes["properties"] = record.details.image_properties
        return attributes

    def _flavor(self, record: ServerRecord) -> dict[str, Content]:
        flavor = record.flavor
        if not self.call.at(2, 47):
            href = f"{self.call.service.public_url}/compute/flavors/{flavor.id}"
            return {"id": flavor.id, "links": [{"rel": "bookmark", "href": href}]}
        attributes: dict[str, Content] = {
            "vcpus": flavor.vcpus,
            "ram": flavor.memory_mb,
            "disk": flavor.disk_gb,
            "ephemeral": flavor.ephemeral_gb,
            "swap": flavor.swap_mb,
            "original_name": flavor.name,
        }
        if self.shows_extra_specs:
            attributes["extra_specs"] = flavor.extra_specs
        return attributes

    def _fault(self, record: ServerRecord) -> dict[str, Content]:
        fault = record.fault
        assert fault is not None
        attributes = {"code": fault["code"], "created": seconds(fault["created_at"]), "message": fault["message"]}
        if fault["would_fit"] and self.shows_would_fit:
            attributes["message"] = f"{fault['message']} {fault['would_fit']}"
        if fault["details"] and (self.is_admin or fault["code"] != 500):
            attributes["details"] = fault["details"]
        return attributes


def zone_of(record: ServerRecord) -> str:
    """Return the zone of its host, as `find_zones` found it; without a host, the requested zone."""
    return record.zone if record.host else record.details.pinned_zone or ""


async def find_zones(call: Call, records: Iterable[ServerRecord]) -> None:
    zones = await call.service.zones.sync()
    for record in records:
        record.zone = zones.zone_of(record.host) if record.host else ""


def host_status(record: ServerRecord, hosts: Mapping[str, HostState]) -> str:
    state = hosts.get(record.host or "")
    if state is None:
        return ""
    statuses = {
        "up": "UP",
        "returning": "UP",
        "disabled": "MAINTENANCE",
        "draining": "MAINTENANCE",
        "unknown": "UNKNOWN",
    }
    return statuses.get(state.status, "DOWN" if state.declared else "UNKNOWN")
