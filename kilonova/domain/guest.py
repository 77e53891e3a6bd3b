"""Messages of drivers, agents and conductors about guests."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.guest_contents import GuestContents
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware


class Copy(msgspec.Struct, frozen=True):
    """A copy of a guest on a host, numbered by the turn that created it (law 4)."""

    server: str
    copy: int


class CopyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A copy that a host reports."""

    server: str
    copy: int
    power: str  # on | off | absent (a disk or directory without a guest)
    whole: bool  # the disk is complete
    marker: str = ""
    defined: bool = True
    claim: HostClaim | None = None  # its claim on the host's hardware
    volumes: tuple[str, ...] = ()  # attachments that the guest is defined with
    turn: int = 0  # the highest of the server that the host has had; 0: none that it remembers


class GuestVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume of a guest, by its attachment."""

    attachment: str
    volume: str
    device: str = ""
    is_root: bool = False  # the guest boots from it
    tag: str = ""  # of the device, as the request named it
    connection: dict[str, Any] = {}  # only where it is connected, and only for that host: a secret is in it

    def __repr__(self) -> str:
        """Leave out the connection's secret (law 13)."""
        connected = bool(self.connection)
        return f"GuestVolume(attachment={self.attachment!r}, volume={self.volume!r}, connected={connected})"


class GuestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a guest, which a driver may keep; the guest's secrets come separately (`GuestSecrets`)."""

    server: str
    copy: int
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int  # of the root disk; 0: as large as its image
    ephemeral_gb: list[int] = []  # one disk for each size
    swap_mb: int = 0
    disk_tags: dict[str, str] = {}  # as the request named them: of root, ephemeral0, ..., swap
    image: str = ""
    image_format: str = ""  # as its owner declared it: a driver opens the image as this and as nothing else
    image_marker: str = ""  # the content that simulated guests find on the image; "": its id
    hardware: HardwareRequest | None = None  # the requested hardware; the field's name is part of the wire format
    claim: HostClaim | None = None  # the host's grant for it
    volumes: list[GuestVolume] = []
    ports: list[GuestPort] = []
    contents: GuestContents = GuestContents()
    shutdown_seconds: float | None = None  # for the guest to shut down; None: the host's default


class Hypervisor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A driver's description of its hypervisor; filters and weighers judge by it."""

    kind: str = ""
    version: int = 0
    supported: list[tuple[str, str, str]] = []  # architecture, hypervisor type, vm mode
    cpu: dict[str, str] = {}  # values that flavors may request as `capabilities:cpu_info:…`
    metrics: dict[str, float] = {}  # by name, as measured when the host registered


class HostInventory(msgspec.Struct, frozen=True):
    """A host's offer to placement, per resource class: total, reserved, allocation_ratio; its traits and hypervisor;
    and the hardware that its own claims refer to."""

    classes: dict[str, tuple[int, int, float]]
    traits: list[str] = []
    hypervisor: Hypervisor = Hypervisor()
    hardware: HostHardware = HostHardware()
    initial: list[str] = []  # classes whose allocation ratio counts only until placement has one
