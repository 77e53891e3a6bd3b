"""A host's request for the bytes of a volume, and the response. Both travel over the bus."""

from __future__ import annotations

import msgspec


class VolumeOpening(msgspec.Struct, frozen=True, kw_only=True):
    """A host that shows the secret of its connection asks for an address. Its repr shows no secret."""

    attachment: str
    secret: str

    def __repr__(self) -> str:
        return f"VolumeOpening(attachment={self.attachment!r})"


class GrownVolume(msgspec.Struct, frozen=True):
    """The message to a host that a guest's volume is larger now."""

    attachment: str
    size: int  # GB


class OpenedVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The endpoint of a volume: a socket of this machine, or an address that requires TLS with the secret as its
    pre-shared key."""

    export: str = ""
    socket: str = ""
    address: str = ""
    port: int = 0
    code: str = ""  # of the refusal, if it is one
    message: str = ""
    final: bool = False  # trying again cannot help
