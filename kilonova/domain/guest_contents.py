"""The data that a guest gets about itself, by a config drive or the metadata service.

`GuestContents` is part of the guest's definition, and drivers may keep it. `GuestSecrets` is not: it is sent in the
order of a step beside the definition, is encrypted wherever it is recorded, and has no readable repr (law 13).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LONGEST_SHUTDOWN = 300.0  # seconds


class PublicKey(msgspec.Struct, frozen=True):
    """A key pair's public half, as it was when the server was given it."""

    name: str
    text: str
    type: str = "ssh"  # | x509


def shutdown_seconds(image_properties: Mapping[str, str]) -> float | None:
    """Return the seconds that a guest gets to shut down (Nova's `os_shutdown_timeout`); None: the image does not say.
    Bounded: an operator who moves the server waits for it, too."""
    text = str(image_properties.get("os_shutdown_timeout", ""))
    return min(float(text), LONGEST_SHUTDOWN) if text.isascii() and text.isdigit() else None


def is_mandatory(image_properties: Mapping[str, str]) -> bool:
    """Return whether guests of this image need a config drive, whatever the request says."""
    return image_properties.get("img_config_drive") == "mandatory"


class GuestContents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The contents that are not secret."""

    hostname: str = ""
    public_keys: list[PublicKey] = []
    metadata: dict[str, str] = {}
    config_drive: bool = False  # it has one: the request, the image or [DEFAULT] force_config_drive says so
    availability_zone: str = ""
    launch_index: int = 0
    project_id: str = ""
    user_id: str = ""
    reservation_id: str = ""
    flavor_name: str = ""
    created_at: float = 0.0


class GuestFile(msgspec.Struct, frozen=True):
    """A file that the request put into the guest."""

    path: str
    contents: str  # base64

    def __repr__(self) -> str:
        return f"GuestFile(path={self.path!r})"


class GuestSecrets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The contents that only the guest may read."""

    user_data: str = ""  # base64, as given
    files: list[GuestFile] = []
    admin_password: str = ""  # only in the operation that sets it

    def __repr__(self) -> str:
        return f"GuestSecrets(files={len(self.files)})"
