"""The payloads of notifications: Nova's versioned objects with their names, versions and keys.

Keys that this cloud has no value for are null or empty, in Nova's type. No secret gets in (law 13).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kilonova.domain.cause import Cause
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject
from kilonova.domain.network import Vif
from kilonova.domain.server import POWER_NONE, POWER_RUNNING, POWER_SHUTDOWN, Flavor, Server
from kilonova.domain.volume import ServerVolume
from kilonova.engine.course import Problem
from kilonova.services.compute.keys import fingerprint_of
from kilonova.world import Row

Payload = JsonObject
# As published with Nova 2026.2.
VERSIONS = {
    "InstanceActionPayload": "1.9",
    "InstanceActionRebuildPayload": "1.10",
    "InstanceCreatePayload": "1.13",
    "ComputeTaskPayload": "1.0",
    "ServiceStatusPayload": "1.1",
    "ExceptionPayload": "1.1",
    "FlavorPayload": "1.4",
    "IpPayload": "1.0",
    "BlockDevicePayload": "1.0",
    "KeypairPayload": "1.0",
    "RequestSpecPayload": "1.1",
    "ImageMetaPayload": "1.0",
    "ImageMetaPropsPayload": "1.19",
}
POWER_NAMES = {POWER_NONE: "pending", POWER_RUNNING: "running", POWER_SHUTDOWN: "shutdown"}
EXCEPTIONS = {"no_valid_host": "NoValidHost", "claim_refused": "NoValidHost"}  # by code; others keep theirs
SERVICE_VERSION = 0  # of Nova's internal protocols, which this cloud does not speak
PROPERTY_PREFIXES = ("hw_", "img_", "os_")


def nova_object(name: str, data: Payload) -> Payload:
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": VERSIONS[name],
        "nova_object.data": data,
    }


def moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instance_payload(server: Server, cause: Cause, name: str, problem: Problem | None) -> Payload:
    """Return the payload of a server. `name`: create, rebuild and rebuild_scheduled have additional keys."""
    details = server.details
    data = {**_of_server(server), **_of_details(details), **_of_cause(cause)}
    data["flavor"] = flavor_payload(server.flavor)
    data["fault"] = None if problem is None else exception_payload(problem)
    if name == "create":
        return nova_object("InstanceCreatePayload", {**data, **_of_create(server)})
    if name in ("rebuild", "rebuild_scheduled"):
        data["trusted_image_certificates"] = details.trusted_image_certificates
        return nova_object("InstanceActionRebuildPayload", data)
    return nova_object("InstanceActionPayload", data)


def _of_server(server: Server) -> Payload:
    return {
        "uuid": server.id,
        "user_id": server.user_id,
        "tenant_id": server.project_id,
        "display_name": server.name,
        "host": server.host,
        "node": server.host,
        "image_uuid": server.image_ref,
        "created_at": moment(server.created_at),
        "launched_at": moment(server.launched_at),
        "terminated_at": moment(server.terminated_at),
        "deleted_at": moment(server.terminated_at) if server.deleted else None,
        "updated_at": moment(server.updated_at),
        "state": server.vm_state,
        "power_state": POWER_NAMES.get(server.power_state, "pending"),
        "task_state": server.task_state,
        "progress": 0,
        "ip_addresses": [] if server.deleted else _addresses(server.vifs),
        "block_devices": [] if server.deleted else _block_devices(server.volumes),
        "kernel_id": "",
        "ramdisk_id": "",
        "shares": [],
    }


def _of_details(details: Details) -> Payload:
    properties = details.image_properties
    return {
        "reservation_id": details.reservation_id or None,
        "display_description": details.description,
        "host_name": details.hostname or None,
        "os_type": properties.get("os_type"),
        "architecture": properties.get("hw_architecture") or properties.get("architecture"),
        "availability_zone": details.availability_zone or details.pinned_zone,
        "key_name": details.key_name,
        "metadata": details.metadata,
        "locked": details.locked_by is not None,
        "locked_reason": details.locked_reason,
        "auto_disk_config": details.disk_config,
    }


def _of_cause(cause: Cause) -> Payload:
    return {
        "request_id": cause.request_id if cause.user_id and cause.project_id else None,
        "action_initiator_user": cause.user_id or None,
        "action_initiator_project": cause.project_id or None,
    }


def _of_create(server: Server) -> Payload:
    details = server.details
    return {
        "keypairs": _keypairs(server.user_id, details),
        "tags": details.tags,
        "trusted_image_certificates": details.trusted_image_certificates,
        "instance_name": f"instance-{server.id[:8]}",
    }


def _keypairs(user_id: str, details: Details) -> list[Payload]:
    key = details.public_key
    if key is None:
        return []
    fingerprint = ""
    with contextlib.suppress(Refused):
        fingerprint = fingerprint_of(key.text, key.type)
    data = {"user_id": user_id, "name": key.name, "fingerprint": fingerprint, "public_key": key.text, "type": key.type}
    return [nova_object("KeypairPayload", data)]


def _addresses(vifs: list[Vif]) -> list[Payload]:
    return [
        nova_object(
            "IpPayload",
            {
                "label": vif.network_name,
                "mac": vif.mac,
                "meta": {},
                "port_uuid": vif.port_id,
                "version": one.version,
                "address": one.address,
                "device_name": f"tap{vif.port_id[:11]}",
            },
        )
        for vif in vifs
        for one in vif.addresses
        if one.kind == "fixed"
    ]


def _block_devices(volumes: list[ServerVolume]) -> list[Payload]:
    return [
        nova_object(
            "BlockDevicePayload",
            {
                "device_name": one.device or None,
                "boot_index": 0 if one.is_root else None,
                "delete_on_termination": one.delete_on_termination,
                "volume_id": one.volume_id,
                "tag": one.tag,
            },
        )
        for one in volumes
    ]


def flavor_payload(flavor: Flavor) -> Payload:
    return nova_object(
        "FlavorPayload",
        {
            "flavorid": flavor.id,
            "name": flavor.name,
            "memory_mb": flavor.memory_mb,
            "vcpus": flavor.vcpus,
            "root_gb": flavor.disk_gb,
            "ephemeral_gb": flavor.ephemeral_gb,
            "swap": flavor.swap_mb,
            "rxtx_factor": 1.0,
            "vcpu_weight": 0,
            "disabled": False,
            "is_public": True,
            "extra_specs": flavor.extra_specs,
            "projects": None,
            "description": None,
        },
    )


def exception_payload(problem: Problem) -> Payload:
    """Return the payload of a problem, with the step as its function; no traceback: the journal has the details."""
    return nova_object(
        "ExceptionPayload",
        {
            "module_name": "kilonova.operations",
            "function_name": problem.step,
            "exception": EXCEPTIONS.get(problem.code, problem.code),
            "exception_message": problem.message,
            "traceback": "",
        },
    )


def compute_task_payload(server: Server, problem: Problem, state: str = "") -> Payload:
    data: Payload = {
        "instance_uuid": server.id,
        "state": state or server.vm_state,
        "reason": exception_payload(problem),
        "request_spec": _request_spec(server),
    }
    return nova_object("ComputeTaskPayload", data)


def _request_spec(server: Server) -> Payload:
    details = server.details
    hints = {
        name: [str(one) for one in (value if isinstance(value, list) else [value])]
        for name, value in details.scheduler_hints.items()
    }
    data: dict[str, Json] = {
        "instance_uuid": server.id,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "availability_zone": details.pinned_zone,
        "flavor": flavor_payload(server.flavor),
        "image": _image(server.image_ref, details) if server.image_ref else None,
        "num_instances": 1,
        "scheduler_hints": hints,
        "security_groups": details.security_groups,
    }
    unknown = ("force_hosts", "force_nodes", "ignore_hosts", "instance_group", "numa_topology", "pci_requests")
    return nova_object("RequestSpecPayload", data | dict.fromkeys((*unknown, "requested_destination", "retry")))


def _image(image_id: str, details: Details) -> Payload:
    properties = {name: value for name, value in details.image_properties.items() if name.startswith(PROPERTY_PREFIXES)}
    unknown = ("checksum", "container_format", "created_at", "direct_url", "min_disk", "min_ram", "name", "owner")
    rest = ("protected", "size", "status", "tags", "updated_at", "virtual_size", "visibility")
    data: dict[str, Json] = {
        "id": image_id,
        "disk_format": details.image_format or None,
        "properties": nova_object("ImageMetaPropsPayload", properties),
    }
    return nova_object("ImageMetaPayload", data | dict.fromkeys((*unknown, *rest)))


def service_payload(host: Row | Mapping[str, Any]) -> Payload:
    data = {
        "host": host["name"],
        "binary": "nova-compute",
        "topic": "compute",
        "report_count": 0,
        "disabled": bool(host["disabled"]),
        "disabled_reason": host["disabled_reason"],
        "availability_zone": None,
        "last_seen_up": moment(host["last_seen"]),
        "forced_down": bool(host["forced_down"]),
        "version": SERVICE_VERSION,
        "uuid": host["id"],
    }
    return nova_object("ServiceStatusPayload", data)
