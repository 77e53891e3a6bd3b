"""Volumes as servers know them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import msgspec


class ConnectionData(TypedDict):
    """The data that a host needs to reach a volume, by Cinder's names."""

    volume_id: str
    attachment_id: str
    pool: str
    backend: str
    multiattach: bool
    host: str | None
    size: int  # GB
    access_mode: str
    encrypted: bool
    qos_specs: None
    auth_username: str
    auth_password: NotRequired[str]  # only for those that may connect


class VolumeConnection(TypedDict, total=False):
    """A volume's connection to a host; empty before it is connected."""

    driver_volume_type: str
    data: ConnectionData


class BootSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The initial content of a volume that is created for a server. At most one of the three; none: empty."""

    image_id: str = ""
    snapshot_id: str = ""
    volume_id: str = ""


class VolumeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a volume, for callers that wait until it can be used."""

    id: str
    status: str
    size: int  # GB
    reason: str = ""  # why it is in error
    bootable: bool = False
    multiattach: bool = False
    type: str = ""  # its name
    zone: str = ""
    image_metadata: dict[str, str] = {}
    work: str = ""  # the task that its backend still has to do, whatever status an administrator sets

    @property
    def is_settled(self) -> bool:
        """Return True if no task is under way: the volume can be used, or never will be."""
        return self.is_broken or not self.status.endswith("ing")

    @property
    def is_broken(self) -> bool:
        return self.status.startswith("error")


class SnapshotState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a volume's snapshot, for callers that wait until it can be used."""

    id: str
    status: str
    size: int  # GB
    reason: str = ""  # why it is in error

    @property
    def is_settled(self) -> bool:
        return not self.status.endswith("ing")

    @property
    def is_broken(self) -> bool:
        return self.status.startswith("error")


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment of a server."""

    id: str
    volume_id: str
    server_id: str
    status: str  # reserved | attaching | attached
    mode: str = "rw"
    host: str = ""
    device: str = ""
    created_here: bool = False  # the volume was created for this server
    delete_on_termination: bool = False


class WantedVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume that a new server asks for: an existing one, or a new one from at most one source."""

    volume_id: str = ""
    image_id: str = ""
    snapshot_id: str = ""
    size: int | None = None  # GB; None: as large as its source
    type: str = ""
    is_root: bool = False
    device: str = ""
    tag: str | None = None
    delete_on_termination: bool = False


class ServerVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume of a server, as recorded in the server's own row, from the acceptance of the request until it is
    released."""

    id: str  # as the API shows it: bdm_uuid
    volume_id: str
    attachment_id: str = ""  # "": not reserved yet
    device: str = ""
    tag: str | None = None
    delete_on_termination: bool = False
    is_root: bool = False


_SERVER_VOLUMES = msgspec.json.Decoder(list[ServerVolume])


def server_volumes(document: str | bytes | None) -> list[ServerVolume]:
    return _SERVER_VOLUMES.decode(document) if document else []


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated host's request to read a volume, or (with a text) to write to it."""

    attachment: str
    secret: str
    text: str | None = None

    def __repr__(self) -> str:
        return f"Content(attachment={self.attachment!r})"
