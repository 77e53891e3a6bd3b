"""The bytes of images and disks on their way between a host, the image service and other hosts."""

from __future__ import annotations

import msgspec

TOKEN_HEADER = "X-Kilonova-Image-Token"


class DiskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a disk as it was at one moment, stored on the host until it is uploaded."""

    size: int  # bytes
    disk_format: str


class UploadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The image that bytes are sent to, and the token for it."""

    image: str
    token: str
    size: int
    disk_format: str


class ImageContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The image service's record of an image's bytes."""

    size: int  # bytes
    algorithm: str  # of the checksum, by hashlib's name
    checksum: str  # hexadecimal
    disk_format: str  # as declared: the content cannot be trusted


class ImageOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image that a host may fetch, what it must find, and the token that lets it."""

    image: str
    token: str = ""
    content: ImageContent | None = None  # None: the image service does not have it


class DiskRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route of a move's disks: the URL of the destination's agent, and the token that both hosts got."""

    url: str  # "": the destination takes no disks over the network
    token: str
