"""Volumes, snapshots, attachments and types as every other part sees them; their states, and from which of them what
may be done."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject

CREATING, AVAILABLE, IN_USE, ERROR = "creating", "available", "in-use", "error"
RESERVED, ATTACHING, ATTACHED, DETACHING, DETACHED = "reserved", "attaching", "attached", "detaching", "detached"
EXTENDING, UPLOADING, REVERTING, DELETING = "extending", "uploading", "reverting", "deleting"
DOWNLOADING = "downloading"
ERROR_EXTENDING, MAINTENANCE, RESTORING = "error_extending", "maintenance", "restoring"

STATES = {
    CREATING: "its file is being made",
    AVAILABLE: "it can be used",
    RESERVED: "it is promised to a server",
    ATTACHING: "it is reserved by the older attach API",
    IN_USE: "it is attached",
    DETACHING: "it is about to be detached",
    EXTENDING: "its file grows",
    UPLOADING: "it is copied into an image",
    REVERTING: "it goes back to a snapshot",
    DOWNLOADING: "its content is replaced by that of an image",
    DELETING: "it is being deleted",
    MAINTENANCE: "an administrator works on it",
    ERROR: "it could not be made; the volume shows the reason",
    ERROR_EXTENDING: "it could not grow; it is as large as before",
}
# The states that an administrator may set; many of them exist only in other clouds.
RESETTABLE = frozenset(STATES) | {
    *("awaiting-transfer", "backing-up", "error_backing-up", "error_deleting", "error_managing"),
    *("error_managing_deleting", "error_restoring", "managing", "restoring-backup", "retyping", "unmanaging"),
    "error_unmanaging",
}
SNAPSHOT_STATES = frozenset({CREATING, AVAILABLE, ERROR, DELETING, "deleted", "unmanaging", "backing-up"}) | {
    "error_deleting",
    "error_unmanaging",
    RESTORING,
}
MAY_DELETE = (AVAILABLE, ERROR, "error_restoring", ERROR_EXTENDING, "error_managing")
MAY_DELETE_SNAPSHOT = (AVAILABLE, ERROR)

CREATE, EXTEND, UPLOAD, REVERT, DELETE = "create", "extend", "upload", "revert", "delete"  # tasks
REIMAGE = "reimage"  # the same
UNDER_WAY = {  # the status while each piece of work is under way
    CREATE: CREATING,
    EXTEND: EXTENDING,
    UPLOAD: UPLOADING,
    REVERT: REVERTING,
    REIMAGE: DOWNLOADING,
    DELETE: DELETING,
}
NO_WORK = {"work": "", "work_id": "", "work_value": ""}
USER, IMAGE = "user", "image"  # kinds of metadata
READ_WRITE, READ_ONLY = "rw", "ro"

MOST_SHOWN = 80  # characters of an invalid id that an error quotes
ZONE = "nova"
DEFAULT_TYPE = "__DEFAULT__"
IS_TRUE = "<is> True"  # how an extra spec says so


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    project_id: str
    created_at: float = 0.0

    def is_visible_to(self, caller: Caller) -> bool:
        return caller.is_admin or self.project_id == caller.project_id


class Stored(Owned, frozen=True, kw_only=True):
    """A volume or a snapshot: it has a file, on which a backend works."""

    user_id: str
    size: int
    type_id: str
    backend: str
    name: str | None = None
    description: str | None = None
    status: str = CREATING
    reason: str = ""
    work: str = ""
    work_id: str = ""
    work_tries: int = 0
    marker: str = ""
    updated_at: float | None = None
    metadata: dict[str, str] = {}


class Volume(Stored, frozen=True, kw_only=True):
    previous_status: str = ""
    work_value: str = ""
    zone: str = ZONE
    bootable: bool = False
    multiattach: bool = False
    readonly: bool | None = None  # None: never set
    migration_status: str | None = None
    snapshot_id: str | None = None
    source_id: str | None = None
    image_id: str | None = None
    created_for: str | None = None
    created_slot: int | None = None
    goes_with_server: bool = False
    image_metadata: dict[str, str] = {}
    type_name: str = ""
    attachments: tuple[Attachment, ...] = ()

    @property
    def is_attached(self) -> bool:
        return any(attachment.status == ATTACHED for attachment in self.attachments)


class Snapshot(Stored, frozen=True, kw_only=True):
    volume_id: str
    progress: str = "0%"


class Attachment(Owned, frozen=True, kw_only=True):
    volume_id: str
    server_id: str | None = None
    status: str = RESERVED
    mode: str = READ_WRITE
    host: str | None = None
    device: str | None = None
    connector: JsonObject = {}
    connected_at: float | None = None
    turn: int = 0
    ordinal: int = 0
    goes_with_server: bool = False
    attached_at: float | None = None

    @property
    def is_connected(self) -> bool:
        """Return True if the attachment is connected. One that is detaching is not: its secret is void."""
        return self.connected_at is not None and self.status != DETACHING

    @property
    def is_computes(self) -> bool:
        """Compute made it, and alone knows whether a guest still has it open."""
        return self.turn > 0


class VolumeType(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | None = None
    is_public: bool = True
    extra_specs: dict[str, str] = {}
    created_at: float = 0.0
    updated_at: float | None = None
    granted: bool = False  # the caller's project is on its access list

    def is_visible_to(self, caller: Caller) -> bool:
        return self.is_public or self.granted or caller.is_admin

    @property
    def is_multiattach(self) -> bool:
        return self.extra_specs.get("multiattach") == IS_TRUE


def file_of(record: Volume | Snapshot) -> str:
    """Return the name of its file in the backend's folder."""
    return f"{'volume' if isinstance(record, Volume) else 'snapshot'}-{record.id}"


def places(volume: Volume, gone: Collection[Attachment]) -> list[tuple[str, str]]:
    """Return the backend and the volume if one of these attachments is connected."""
    return [(volume.backend, volume.id)] if any(one.is_connected for one in gone) else []


def require_status(volume: Volume, allowed: Collection[str], verb: str) -> None:
    if volume.status not in allowed:
        raise bad_volume(
            f"Volume {volume.id} status must be {' or '.join(allowed)} to {verb}, but current status is "
            f"{volume.status}."
        )


def bad_volume(text: str) -> Refused:
    return Refused("invalid_volume", f"Invalid volume: {text}")


def bad_snapshot(text: str) -> Refused:
    return Refused("invalid_snapshot", f"Invalid snapshot: {text}")


def bad_input(text: str) -> Refused:
    return Refused("invalid_input", f"Invalid input received: {text}")


def no_such_attachment(attachment_id: str) -> Refused:
    return Refused("attachment_not_found", f"Volume attachment {attachment_id[:MOST_SHOWN]} could not be found.")


def no_such_type(name_or_id: str) -> Refused:
    return Refused("type_not_found", f"Volume type {name_or_id[:MOST_SHOWN]} could not be found.")
