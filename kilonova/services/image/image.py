"""An image and its members, as every other part of the cloud sees them, and the words they are spoken of in."""

from __future__ import annotations

import msgspec

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused

QUEUED = "queued"  # recorded; without bytes
SAVING = "saving"  # its bytes are on their way
ACTIVE = "active"
DEACTIVATED = "deactivated"  # only administrators may read its bytes

PUBLIC, PRIVATE, SHARED, COMMUNITY = VISIBILITIES = ("public", "private", "shared", "community")
PENDING, ACCEPTED, REJECTED = MEMBER_STATUSES = ("pending", "accepted", "rejected")

CONTAINER_FORMATS = ("ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed")
DISK_FORMATS = ("ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso", "ploop")
HASH_ALGORITHM = "sha512"

MOST_PROPERTIES = MOST_TAGS = MOST_MEMBERS = 128  # of one image
MOST_SHOWN = 80  # characters of an invalid id that an error quotes


class Image(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = None
    status: str = QUEUED
    visibility: str = SHARED
    owner: str | None = None
    protected: bool = False
    hidden: bool = False
    min_disk: int = 0  # GB
    min_ram: int = 0  # MB
    container_format: str | None = None
    disk_format: str | None = None
    size: int | None = None
    virtual_size: int | None = None
    checksum: str | None = None
    hash_algorithm: str | None = None
    hash_value: str | None = None
    marker: str | None = None  # the content that simulated guests find on it
    file: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    properties: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    is_member: bool = False  # the caller's project is one of its members

    def is_owned_by(self, caller: Caller) -> bool:
        return bool(caller.project_id) and self.owner == caller.project_id

    def is_visible_to(self, caller: Caller) -> bool:
        if caller.is_admin or self.is_owned_by(caller) or self.visibility in (PUBLIC, COMMUNITY):
            return True
        return self.visibility == SHARED and self.is_member

    @property
    def disk_bytes(self) -> int:
        """Return the size that a disk needs to hold the image."""
        return (self.size or 0) if self.virtual_size is None else self.virtual_size

    @property
    def content(self) -> str:
        """Return the content that simulated guests find on the image."""
        return self.marker or f"image:{self.id}"

    @property
    def has_bytes(self) -> bool:
        return self.status in (ACTIVE, DEACTIVATED)

    def require_data(self) -> None:
        """Raise `Refused` for an active image without a file: it was made of a server that boots from a volume."""
        if self.has_bytes and self.file is None:
            text = f"Image {self.id} has no data: it names snapshots of volumes"
            raise Refused("image_without_data", f"{text}; create a new server from it instead.")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    image_id: str
    member_id: str
    status: str
    created_at: float
    updated_at: float


def no_such_image(image_id: str) -> Refused:
    return Refused("image_not_found", f"Image {image_id[:MOST_SHOWN]} could not be found.")
