"""What drivers, agents and conductors say about guests."""

from __future__ import annotations

import msgspec


class Copy(msgspec.Struct, frozen=True):
    """One copy of a guest on a host, numbered by the turn that made it (law 4)."""

    server: str
    copy: int


class CopyReport(msgspec.Struct, frozen=True):
    """What a host says it holds."""

    server: str
    copy: int
    power: str  # on | off | absent (a disk or directory without a guest)
    whole: bool  # the disk is complete
    marker: str = ""
    defined: bool = True


class GuestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All a driver needs to make a guest."""

    server: str
    copy: int
    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    image: str = ""


class HostInventory(msgspec.Struct, frozen=True):
    """What a host offers to placement, per resource class: total, reserved, allocation_ratio."""

    classes: dict[str, tuple[int, int, float]]
