"""The API's record of a server besides its states: written when it is created and by the owner afterwards."""

from __future__ import annotations

import msgspec

from kilonova.domain.guest_contents import PublicKey
from kilonova.domain.json import Json

# The server's private values, encrypted (law 13): an operation that has ended keeps none of them.
SEALED = ("user_data", "personality")


class Details(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A JSON document of the server's row. Absent keys have their default, so old rows stay readable."""

    metadata: dict[str, str] = {}
    tags: list[str] = []
    description: str | None = None
    hostname: str = ""
    key_name: str | None = None
    public_key: PublicKey | None = None  # that of key_name as it was: the key pair may be deleted or replaced
    user_data: str | None = None  # sealed base64, as given; gone with the server
    personality: str | None = None  # sealed JSON: path and base64 contents of each file; gone with the server
    config_drive: bool = False
    disk_config: str = "MANUAL"
    access_ip_v4: str = ""
    access_ip_v6: str = ""
    availability_zone: str | None = None  # where it is
    pinned_zone: str | None = None  # the requested one: binds later moves
    reservation_id: str = ""
    launch_index: int = 0
    security_groups: list[str] = []  # requested names, shown until there are ports
    root_device_name: str = "/dev/vda"
    image_properties: dict[str, str] = {}
    image_format: str = ""  # of its disk
    image_marker: str = ""  # the content that simulated guests find on its image; "": its id
    disk_tags: dict[str, str] = {}  # of its local disks: root, ephemeral0, ..., swap
    volume_backed: bool = False  # its root disk is a volume
    trusted_image_certificates: list[str] | None = None
    scheduler_hints: dict[str, Json] = {}
    locked_by: str | None = None  # owner | admin
    locked_reason: str | None = None
    soft_deleted_at: float | None = None  # since when it waits to be reclaimed


_DECODER = msgspec.json.Decoder(Details)


def details_from(document: str | bytes | None) -> Details:
    return _DECODER.decode(document) if document else Details()


def details_document(details: Details) -> str:
    return msgspec.json.encode(details).decode()
