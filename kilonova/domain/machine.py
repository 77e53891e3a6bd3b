"""Orders to a simulated machine from outside, bypassing its agent: to its power controller, console server and disk
port. Every simulated machine listens on its own subject, in any process."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class FailOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The next `times` calls of a driver verb fail, or crash the agent in the middle."""

    verb: str
    times: int = 1
    how: str = "error"


class WriteOrder(msgspec.Struct, frozen=True):
    """The guest's writes to its root disk, an ephemeral or swap disk, or the volume with this id."""

    server: str
    text: str
    disk: str = "root"


class PlantOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A guest without a request, as after a restored backup or a forgotten test."""

    server: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    copy: Annotated[int, Meta(ge=1, le=2**62)] = 1
    power: Literal["on", "off"] = "on"


class GuestPower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A guest that ends without an order, or is started without its agent."""

    server: str
    power: Literal["on", "off"] = "off"


BLANK = "blank"  # the content of a new local disk


class LocalDisk(msgspec.Struct):
    """An ephemeral or swap disk of a guest."""

    size: int  # GB; of swap, MB
    content: list[str] = msgspec.field(default_factory=lambda: [BLANK])

    @property
    def marker(self) -> str:
        return "+".join(self.content)


class SentDisk(msgspec.Struct, frozen=True):
    """The whole content of a disk, for the copy of that number."""

    server: str
    copy: int
    content: list[str]
    size_gb: int = 0
    others: dict[str, LocalDisk] = {}  # ephemeral disks, by name


class MachineOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The orders to a machine: all that are set are done, in this order."""

    power: bool | None = None
    link: bool | None = None
    fail: FailOrder | None = None
    lose: str | None = None  # every copy of the server with this id is gone, as when a disk breaks
    plant: PlantOrder | None = None
    guest: GuestPower | None = None
    write: WriteOrder | None = None
    receive: SentDisk | None = None
    console: str | None = None  # of the server with this id


class MachineAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine's state now; `refused` if the order was impossible, and then nothing was done."""

    power: bool = True
    link: bool = True
    console: str = ""
    code: str = ""
    refused: str = ""
