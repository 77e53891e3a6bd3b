"""Schemas of requests, per microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import MAX_INT, UUID, closed, nothing, wrapped
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version
from kilonova.services.image.image import VISIBILITIES

PRINTABLE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f]*$"
TEXT: Schema = {"type": ["string", "null"], "maxLength": 255, "pattern": PRINTABLE}
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[^\x00-\x1f]*[^\x00-\x20][^\x00-\x1f]*$",
}
BOOLEAN: Schema = {
    "type": ["boolean", "string"],
    "enum": [
        *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes", "y", "t"),
        *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no", "n", "f"),
    ],
}
SIZE: Schema = {"type": ["integer", "string"], "pattern": "^[0-9]{1,10}$", "minimum": 1, "maximum": MAX_INT}
UUID_OR_NONE: Schema = {"oneOf": [UUID, {"type": "null"}]}


def _pairs(value: Schema, *, null: bool = False) -> Schema:
    kinds = ["object", "null"] if null else ["object"]
    return {"type": kinds, "patternProperties": {"^[a-zA-Z0-9-_:. /]{1,255}$": value}, "additionalProperties": False}


METADATA = _pairs({"type": "string", "maxLength": 255})
METADATA_OR_NONE = _pairs({"type": "string", "maxLength": 255}, null=True)
SPECS = _pairs({"type": "string", "maxLength": 255})
IMAGE_METADATA = _pairs({"type": "string", "maxLength": 65535})
CONNECTOR: Schema = {"type": "object", "minProperties": 1, "maxProperties": 64}

# -- volumes ----------------------------------------------------------------------------------------------------------

_NEW: Schema = {
    **dict.fromkeys(("name", "description", "display_name", "display_description"), TEXT),
    "volume_type": TEXT,
    "metadata": METADATA_OR_NONE,
    **dict.fromkeys(("snapshot_id", "source_volid", "consistencygroup_id"), UUID_OR_NONE),
    "size": SIZE | {"type": ["integer", "string", "null"]},
    "availability_zone": TEXT,
    "multiattach": {"oneOf": [BOOLEAN, {"type": "null"}]},
    **dict.fromkeys(("image_id", "imageRef"), TEXT),
}


def _create(version: Version) -> Schema:
    properties = dict(_NEW)
    if version >= (3, 13):
        properties["group_id"] = TEXT
    if version >= (3, 47):
        properties["backup_id"] = UUID_OR_NONE
    volume: Schema = {"type": "object", "properties": properties, "additionalProperties": version < (3, 53)}
    hints = {"type": ["object", "null"]}
    return closed({"volume": volume, "OS-SCH-HNT:scheduler_hints": hints}, "volume")


def _update(version: Version) -> Schema:
    names = ("name", "description", "display_name", "display_description")
    volume = closed({**dict.fromkeys(names, TEXT), "metadata": METADATA})
    return wrapped("volume", volume | {"minProperties": 1} if version >= (3, 53) else volume)


CREATE = Forms({version: _create(version) for version in [(3, 0), (3, 13), (3, 47), (3, 53)]})
UPDATE = Forms({version: _update(version) for version in [(3, 0), (3, 53)]})
SET_METADATA = Forms(wrapped("metadata", METADATA))
SET_ITEM = Forms(wrapped("meta", METADATA | {"minProperties": 1}))


# -- what is done with a volume ---------------------------------------------------------------------------------------


def action(key: str, properties: Schema, *required: str) -> Forms:
    return Forms(wrapped(key, closed(properties, *required)))


def bare(key: str) -> Forms:
    return Forms(nothing(key))


def _upload(version: Version) -> Schema:
    properties: Schema = {
        "image_name": {"type": "string", "minLength": 1, "maxLength": 255},
        "force": BOOLEAN,
        "disk_format": {"type": "string", "enum": ["raw", "vmdk", "vdi", "qcow2", "vhd", "vhdx", "ploop"]},
        "container_format": TEXT,
    }
    if version >= (3, 1):
        properties |= {"visibility": {"type": "string", "enum": list(VISIBILITIES)}, "protected": BOOLEAN}
    return wrapped("os-volume_upload_image", closed(properties, "image_name"))


UPLOAD = Forms({version: _upload(version) for version in [(3, 0), (3, 1)]})
EXTEND = action("os-extend", {"new_size": SIZE}, "new_size")
REVERT = action("revert", {"snapshot_id": UUID}, "snapshot_id")
REIMAGE = action("os-reimage", {"image_id": UUID, "reimage_reserved": BOOLEAN}, "image_id")
RETYPE = action(
    "os-retype",
    {"new_type": NAME, "migration_policy": {"type": ["string", "null"], "enum": ["on-demand", "never", None]}},
    "new_type",
)
BOOTABLE = action("os-set_bootable", {"bootable": BOOLEAN}, "bootable")
READONLY = action("os-update_readonly_flag", {"readonly": BOOLEAN}, "readonly")
SET_IMAGE_METADATA = action("os-set_image_metadata", {"metadata": IMAGE_METADATA}, "metadata")
UNSET_IMAGE_METADATA = action("os-unset_image_metadata", {"key": NAME}, "key")
RESET = action("os-reset_status", dict.fromkeys(("status", "attach_status", "migration_status"), TEXT))
ATTACH = Forms(
    wrapped(
        "os-attach",
        closed(
            {
                "instance_uuid": UUID,
                "mountpoint": NAME,
                "host_name": {"type": "string", "maxLength": 255},
                "mode": {"type": "string", "enum": ["rw", "ro"]},
            },
            "mountpoint",
        )
        | {"anyOf": [{"required": ["instance_uuid"]}, {"required": ["host_name"]}]},
    )
)
DETACH = Forms(wrapped("os-detach", closed({"attachment_id": UUID_OR_NONE}) | {"type": ["object", "null"]}))
INITIALIZE = action("os-initialize_connection", {"connector": CONNECTOR}, "connector")
TERMINATE = action("os-terminate_connection", {"connector": CONNECTOR | {"type": ["object", "null"]}}, "connector")
FORCE_DETACH = action(
    "os-force_detach",
    {"connector": CONNECTOR | {"type": ["object", "null"], "minProperties": 0}, "attachment_id": UUID_OR_NONE},
)

# -- snapshots --------------------------------------------------------------------------------------------------------

CREATE_SNAPSHOT = Forms(
    wrapped(
        "snapshot",
        closed(
            {
                **dict.fromkeys(("name", "display_name", "description"), TEXT),
                "volume_id": UUID_OR_NONE,
                "force": {"oneOf": [BOOLEAN, {"type": "null"}]},
                "metadata": METADATA_OR_NONE,
            },
            "volume_id",
        ),
    )
)
UPDATE_SNAPSHOT = Forms(
    wrapped(
        "snapshot",
        closed(dict.fromkeys(("name", "description", "display_name", "display_description"), TEXT))
        | {"minProperties": 1},
    )
)
RESET_SNAPSHOT = action("os-reset_status", {"status": NAME}, "status")
SNAPSHOT_STATUS = action(
    "os-update_snapshot_status",
    {"status": NAME, "progress": {"type": "string", "pattern": "^([0-9]{1,2}|100)%$"}},
    "status",
)


# -- attachments ------------------------------------------------------------------------------------------------------


def _attach(version: Version) -> Schema:
    properties: Schema = {"instance_uuid": UUID, "volume_uuid": UUID}
    properties["connector"] = CONNECTOR | {"type": ["object", "null"], "minProperties": 0}
    if version >= (3, 54):
        properties["mode"] = {"type": "string", "enum": ["rw", "ro"]}
    return wrapped("attachment", closed(properties, "volume_uuid"))


CREATE_ATTACHMENT = Forms({version: _attach(version) for version in [(3, 27), (3, 54)]})
UPDATE_ATTACHMENT = Forms(wrapped("attachment", closed({"connector": CONNECTOR}, "connector")))

# -- types ------------------------------------------------------------------------------------------------------------

CREATE_TYPE = Forms(
    wrapped(
        "volume_type",
        closed(
            {
                "name": NAME,
                "description": TEXT,
                "extra_specs": SPECS,
                "os-volume-type-access:is_public": BOOLEAN,
            },
            "name",
        ),
    )
)
UPDATE_TYPE = Forms(
    wrapped(
        "volume_type", closed({"name": NAME | {"type": ["string", "null"]}, "description": TEXT, "is_public": BOOLEAN})
    )
)
ADD_SPECS = Forms(wrapped("extra_specs", SPECS))
SET_SPEC = Forms(SPECS | {"minProperties": 1, "maxProperties": 1})
GRANT = action("addProjectAccess", {"project": NAME}, "project")
WITHDRAW = action("removeProjectAccess", {"project": NAME}, "project")
SET_DEFAULT = Forms(wrapped("default_type", closed({"volume_type": NAME}, "volume_type")))

# -- quotas and services ----------------------------------------------------------------------------------------------

_LIMIT: Schema = {"type": ["integer", "string"], "pattern": "^-?[0-9]{1,10}$", "minimum": -1, "maximum": MAX_INT}


def _limits(key: str) -> Schema:
    return wrapped(key, {"type": "object", "properties": {"tenant_id": {}}, "additionalProperties": _LIMIT})


SET_QUOTA = Forms(_limits("quota_set"))
SET_CLASS = Forms(_limits("quota_class_set"))
SET_SERVICE = Forms(
    closed({"host": NAME, "binary": NAME, "service": NAME, "disabled_reason": NAME}, "host")
    | {"anyOf": [{"required": ["binary"]}, {"required": ["service"]}]}
)
