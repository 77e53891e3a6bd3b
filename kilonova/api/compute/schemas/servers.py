"""The forms of the requests that create, change and list servers, by microversion."""

from __future__ import annotations

from kilonova.api.compute.patterns import is_pattern
from kilonova.api.compute.schemas.server_devices import LEGACY_DEVICE, device
from kilonova.api.compute.schemas.types import (
    BOOLEAN,
    DESCRIPTION,
    DISK_CONFIG,
    FLAVOR_REF,
    HOST_NAME,
    IPV4,
    IPV6,
    METADATA,
    NAME,
    NON_NEGATIVE,
    POSITIVE,
    TAG,
    TAGS,
    UUID,
    closed,
    texts,
    wrapped,
)
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version

HOSTNAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 63,
    "pattern": "^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]$|^[a-zA-Z0-9]$",
}
FQDN: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$",
}
CERTIFICATES: Schema = {
    "type": ["array", "null"],
    "minItems": 1,
    "maxItems": 50,
    "uniqueItems": True,
    "items": {"type": "string", "minLength": 1},
}
USER_DATA: Schema = {"type": "string", "maxLength": 65535, "pattern": "^[A-Za-z0-9+/=\\s]*$"}
FIXED_IP: Schema = {"oneOf": [IPV4, IPV6]}
HINTS: Schema = {
    "type": "object",
    "properties": {
        "group": UUID,
        "different_host": {"oneOf": [UUID, {"type": "array", "items": UUID, "uniqueItems": True}]},
        "same_host": {"oneOf": [UUID, {"type": "array", "items": UUID, "uniqueItems": True}]},
        "query": {"type": ["string", "object"]},
        "target_cell": {"type": "string", "minLength": 1, "maxLength": 255},
        "different_cell": {"type": ["string", "array"]},
        "build_near_host_ip": FIXED_IP,
        "cidr": {"type": "string", "pattern": r"^/[0-9a-f.:]+$"},
    },
    "additionalProperties": True,
}
PERSONALITY: Schema = {
    "type": "array",
    "items": closed(
        {"path": {"type": "string"}, "contents": {"type": "string", "pattern": "^[A-Za-z0-9+/=\\s]*$"}},
        "path",
        "contents",
    ),
}


def _port(version: Version) -> Schema:
    properties: Schema = {
        "fixed_ip": FIXED_IP,
        "port": {"oneOf": [UUID, {"type": "null"}]},
        "uuid": UUID if version >= (2, 37) else {"type": "string"},
    }
    if (2, 32) <= version <= (2, 36) or version >= (2, 42):
        properties["tag"] = TAG
    return closed(properties)


def _networks(version: Version) -> Schema:
    ports: Schema = {"type": "array", "items": _port(version)}
    return {"oneOf": [ports, {"type": "string", "enum": ["none", "auto"]}]} if version >= (2, 37) else ports


def _create(version: Version) -> Schema:
    properties: Schema = {
        "name": NAME,
        "imageRef": {"oneOf": [UUID, {"type": "string", "maxLength": 0}]},
        "flavorRef": FLAVOR_REF,
        "adminPass": {"type": "string"},
        "metadata": METADATA,
        "networks": _networks(version),
        "OS-DCF:diskConfig": DISK_CONFIG,
        "accessIPv4": IPV4,
        "accessIPv6": IPV6,
        "availability_zone": NAME,
        "block_device_mapping": {"type": "array", "items": LEGACY_DEVICE},
        "block_device_mapping_v2": {"type": "array", "items": device(version)},
        "config_drive": BOOLEAN,
        "key_name": {"type": "string", "minLength": 1, "maxLength": 255},
        "min_count": POSITIVE,
        "max_count": POSITIVE,
        "return_reservation_id": BOOLEAN,
        "security_groups": {"type": "array", "items": closed({"name": NAME})},
        "user_data": USER_DATA,
    }
    later: dict[Version, Schema] = {
        (2, 19): {"description": DESCRIPTION},
        (2, 52): {"tags": TAGS},
        (2, 63): {"trusted_image_certificates": CERTIFICATES},
        (2, 74): {"host": HOST_NAME, "hypervisor_hostname": HOST_NAME},
        (2, 90): {"hostname": HOSTNAME},
        (2, 94): {"hostname": FQDN},
    }
    for since, more in later.items():
        if version >= since:
            properties |= more
    if version < (2, 57):
        properties["personality"] = PERSONALITY
    required = ["name", "flavorRef"] + (["networks"] if version >= (2, 37) else [])
    hints = {"os:scheduler_hints": HINTS, "OS-SCH-HNT:scheduler_hints": HINTS}
    return closed({"server": closed(properties, *required), **hints}, "server")


_CREATE_CHANGES: list[Version] = [(2, n) for n in (1, 19, 32, 33, 37, 42, 52, 57, 63, 67, 74, 90, 94)]
CREATE = Forms({version: _create(version) for version in _CREATE_CHANGES})


def _update(version: Version) -> Schema:
    properties: Schema = {
        "name": NAME,
        "OS-DCF:diskConfig": DISK_CONFIG,
        "accessIPv4": {"oneOf": [IPV4, {"type": "null"}]},
        "accessIPv6": {"oneOf": [IPV6, {"type": "null"}]},
    }
    if version >= (2, 19):
        properties["description"] = DESCRIPTION
    if version >= (2, 90):
        properties["hostname"] = FQDN if version >= (2, 94) else HOSTNAME
    if version >= (2, 104):
        properties["pinned_availability_zone"] = {"oneOf": [NAME, {"type": "null"}]}
    return wrapped("server", closed(properties))


UPDATE = Forms({version: _update(version) for version in [(2, 1), (2, 19), (2, 90), (2, 94), (2, 104)]})


def _rebuild(version: Version) -> Schema:
    properties: Schema = {
        "imageRef": UUID,
        "name": NAME,
        "adminPass": {"type": "string"},
        "metadata": METADATA,
        "preserve_ephemeral": BOOLEAN,
        "OS-DCF:diskConfig": DISK_CONFIG,
        "accessIPv4": IPV4,
        "accessIPv6": IPV6,
    }
    later: dict[Version, Schema] = {
        (2, 19): {"description": DESCRIPTION},
        (2, 54): {"key_name": {"type": ["string", "null"], "minLength": 1, "maxLength": 255}},
        (2, 57): {"user_data": {**USER_DATA, "type": ["string", "null"]}},
        (2, 63): {"trusted_image_certificates": CERTIFICATES},
        (2, 90): {"hostname": HOSTNAME},
        (2, 94): {"hostname": FQDN},
    }
    for since, more in later.items():
        if version >= since:
            properties |= more
    if version < (2, 57):
        properties["personality"] = PERSONALITY
    return wrapped("rebuild", closed(properties, "imageRef"))


REBUILD = Forms({(2, n): _rebuild((2, n)) for n in (1, 19, 54, 57, 63, 90, 94)})

SORT_KEYS = [
    *("access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at"),
    *("display_description", "display_name", "host", "hostname", "image_ref", "instance_type_id", "kernel_id"),
    *("key_name", "launch_index", "launched_at", "locked_by", "node", "power_state", "progress", "project_id"),
    *("ramdisk_id", "root_device_name", "task_state", "terminated_at", "updated_at", "user_id", "uuid", "vm_state"),
]
FILTERS = [
    *("user_id", "project_id", "tenant_id", "launch_index", "image_ref", "image", "instance_type_id", "host"),
    *("status", "task_state", "uuid", "vm_state", "deleted", "soft_deleted", "changes-since", "all_tenants"),
]
PATTERNS = [  # those that Nova wants to be regular expressions, also where it does not match by them
    *("kernel_id", "ramdisk_id", "hostname", "key_name", "flavor", "launched_at", "terminated_at", "created_at"),
    *("availability_zone", "name", "display_name", "description", "display_description", "node", "power_state"),
    *("progress", "reservation_id", "root_device_name", "access_ip_v4", "access_ip_v6", "auto_disk_config"),
    *("config_drive", "locked_by", "ip", "ip6"),
]
TAG_PATTERNS = ["tags", "tags-any", "not-tags", "not-tags-any"]


class ServerQueryForms(Forms):
    formats = {"regex": is_pattern}


def _list(version: Version) -> Schema:
    keys = [*SORT_KEYS, "locked"] if version >= (2, 73) else SORT_KEYS
    patterns = [*PATTERNS, *TAG_PATTERNS] if version >= (2, 26) else PATTERNS
    properties: Schema = {name: texts() for name in FILTERS}
    properties |= {name: texts({"type": "string", "format": "regex"}) for name in patterns}
    properties |= {
        "limit": texts(NON_NEGATIVE),
        "marker": texts(),
        "sort_key": texts({"type": "string", "enum": keys}),
        "sort_dir": texts({"type": "string", "enum": ["asc", "desc"]}),
    }
    if version >= (2, 66):
        properties["changes-before"] = texts()
    if version >= (2, 73):
        properties["locked"] = texts(BOOLEAN)
    return {"type": "object", "properties": properties, "additionalProperties": version < (2, 75)}


LIST = ServerQueryForms({version: _list(version) for version in [(2, 1), (2, 26), (2, 66), (2, 73), (2, 75)]})
