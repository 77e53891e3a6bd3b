"""The two forms of a block device of a new server, by microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import BOOLEAN, POSITIVE, TAG, UUID, closed
from kilonova.api.forms import Schema
from kilonova.api.routes import Version

SHORT_TEXT: Schema = {"type": "string", "maxLength": 255}
NAMED: Schema = {**SHORT_TEXT, "minLength": 1, "pattern": "^[a-zA-Z0-9._/-]*$"}

_OLD: Schema = {
    "virtual_name": SHORT_TEXT,
    "volume_id": UUID,
    "snapshot_id": UUID,
    "volume_size": POSITIVE,
    "device_name": NAMED,
    "delete_on_termination": BOOLEAN,
    "no_device": {},
    "connection_info": {"type": "string", "maxLength": 0xFFFFFF},
}
_NEW: Schema = {
    **_OLD,
    "source_type": {"type": "string", "enum": ["volume", "image", "snapshot", "blank"]},
    "uuid": {**SHORT_TEXT, "minLength": 1, "pattern": "^[a-zA-Z0-9._-]*$"},
    "image_id": UUID,
    "destination_type": {"type": "string", "enum": ["local", "volume"]},
    "guest_format": SHORT_TEXT,
    "device_type": SHORT_TEXT,
    "disk_bus": SHORT_TEXT,
    "boot_index": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]{1,9}$"},
}

LEGACY_DEVICE = closed(_OLD)


def device(version: Version) -> Schema:
    """Return the schema of a block device. Tags are valid at 2.32 only (an error in Nova), and again from 2.42 on."""
    properties = dict(_NEW)
    if version == (2, 32) or version >= (2, 42):
        properties["tag"] = TAG
    if version >= (2, 67):
        properties["volume_type"] = {"type": ["string", "null"], "maxLength": 255}
    return closed(properties)
