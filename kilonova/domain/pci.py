"""PCI devices of a host: which of them guests may have, a guest's request for them, and the choice.

A physical function (type-PF) and its virtual ones (type-VF) exclude each other: the holder of one has the others too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations
from typing import Annotated

import msgspec
from msgspec import Meta

from kilonova.domain.numa import seat

STANDARD, PHYSICAL, VIRTUAL = TYPES = ("type-PCI", "type-PF", "type-VF")
REQUIRED, PREFERRED, LEGACY, SOCKET = AFFINITIES = ("required", "preferred", "legacy", "socket")

Hex4 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{4}$")]
Hex4OrAny = Annotated[str, Meta(pattern=r"^([0-9a-fA-F]{4}|\*)$")]
_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class PciDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    address: str  # domain:bus:slot.function
    vendor_id: str
    product_id: str
    type: str = STANDARD
    cell: int | None = None  # None: the machine does not say
    parent: str = ""  # of a virtual function: the address of its physical one


class PciAlias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name for devices that flavors may ask for; several entries of one name are alternatives."""

    name: Annotated[str, Meta(min_length=1, max_length=256, pattern="^[^:,]+$")]
    vendor_id: Hex4
    product_id: Hex4
    device_type: Annotated[str, Meta(pattern="^(type-PCI|type-PF|type-VF)$")] | None = None
    numa_policy: Annotated[str, Meta(pattern="^(required|preferred|legacy|socket)$")] = LEGACY


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host's devices that may be given to guests; `address` as 0000:81:00.*, its fields may be `*` or left out."""

    vendor_id: Hex4OrAny = "*"
    product_id: Hex4OrAny = "*"
    address: Annotated[str, Meta(pattern=r"^[0-9a-fA-F*]*(:[0-9a-fA-F*]*){0,2}(\.[0-7*]?)?$")] = "*:*:*.*"

    def matches(self, device: PciDevice) -> bool:
        return (
            fnmatchcase(device.vendor_id, self.vendor_id.lower())
            and fnmatchcase(device.product_id, self.product_id.lower())
            and fnmatchcase(device.address, self._pattern)
        )

    @property
    def _pattern(self) -> str:
        slot, _, function = self.address.lower().partition(".")
        parts = ["*"] * (2 - slot.count(":")) + [part or "*" for part in slot.split(":")]
        return f"{':'.join(parts)}.{function or '*'}"


class PciSpec(msgspec.Struct, frozen=True):
    """A kind of acceptable device."""

    vendor_id: str
    product_id: str
    type: str | None = None  # None: any but a physical function, which is a whole card

    def matches(self, device: PciDevice) -> bool:
        fits = device.type != PHYSICAL if self.type is None else device.type == self.type
        return fits and (device.vendor_id, device.product_id) == (self.vendor_id, self.product_id)


class DeviceRequest(msgspec.Struct, frozen=True):
    alias: str
    count: int
    kinds: tuple[PciSpec, ...]
    affinity: str = LEGACY

    def matches(self, device: PciDevice) -> bool:
        return any(kind.matches(device) for kind in self.kinds)


class DeviceClaim(msgspec.Struct, frozen=True):
    alias: str
    address: str


class Nearness:
    """The distance of devices from a guest's chosen NUMA cells. `cells` None: it has none, and any device is near."""

    def __init__(self, cells: Collection[int] | None, sockets: Mapping[int, int]) -> None:
        self._cells = cells
        self._sockets = sockets  # socket of each host cell

    @cached_property
    def _on_socket(self) -> set[int]:
        near = {self._sockets[cell] for cell in self._cells or ()}
        return {cell for cell, socket in self._sockets.items() if socket in near}

    def allows(self, device: PciDevice, affinity: str) -> bool:
        if self._cells is None or affinity == PREFERRED or device.cell in self._cells:
            return True
        return (affinity == LEGACY and device.cell is None) or (affinity == SOCKET and device.cell in self._on_socket)

    def distance(self, device: PciDevice) -> int:
        if self._cells is None or device.cell in self._cells:
            return 0
        return 1 if device.cell is None else 2


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def usable(devices: Iterable[PciDevice], specs: Sequence[DeviceSpec]) -> tuple[PciDevice, ...]:
    """Return the devices that guests may have, by the operator's specs."""
    return tuple(device for device in devices if any(spec.matches(device) for spec in specs))


def free_devices(devices: Sequence[PciDevice], taken: Collection[str]) -> list[PciDevice]:
    """Return the devices that are not taken, and neither contain nor belong to a taken one."""
    parents = {device.parent for device in devices if device.address in taken and device.parent}
    return [
        device
        for device in devices
        if device.address not in taken and device.address not in parents and device.parent not in taken
    ]


def pick(requests: Sequence[DeviceRequest], free: Sequence[PciDevice], near: Nearness) -> tuple[DeviceClaim, ...] | str:
    """Return devices for all requests, none twice, the nearest first; or which request cannot be met."""
    for request in requests:
        suitable = [device for device in free if request.matches(device)]
        allowed = [device for device in suitable if near.allows(device, request.affinity)]
        if len(allowed) < request.count:
            where = (
                "" if len(allowed) == len(suitable) else f" near enough ({request.affinity}), {len(suitable)} in all"
            )
            return f"needs {request.count} of {request.alias}, {len(allowed)} free{where}"
    single = [request for request in requests for _ in range(request.count)]
    cards = [request for request in single if _takes_cards(request)]
    rest = [request for request in single if not _takes_cards(request)]
    for given in _cards(cards, free, near):
        left = free_devices(free, {device.address for device in given})
        matched = _match(rest, left, near)
        if matched is not None:
            chosen = [*zip(cards, given, strict=True), *zip(rest, matched, strict=True)]
            return tuple(DeviceClaim(request.alias, device.address) for request, device in chosen)
    return (
        "needs " + " and ".join(f"{request.count} of {request.alias}" for request in requests) + ", not free together"
    )


def _takes_cards(request: DeviceRequest) -> bool:
    return any(kind.type == PHYSICAL for kind in request.kinds)


def _cards(requests: list[DeviceRequest], free: Sequence[PciDevice], near: Nearness) -> Iterator[list[PciDevice]]:
    """Yield every way to give whole cards: that decides which virtual functions are left. Guests request few of
    them."""
    cards = [device for device in free if any(_suits(request, device, near) for request in requests)]
    cards.sort(key=lambda device: (near.distance(device), device.address))
    for chosen in combinations(cards, len(requests)):
        given = _match(requests, chosen, near)
        if given is not None:
            yield given


def _match(requests: list[DeviceRequest], free: Sequence[PciDevice], near: Nearness) -> list[PciDevice] | None:
    """Return one device per request, or None; requests may overlap. Cards are given first, so a card and its functions
    never compete here."""
    order = sorted(range(len(free)), key=lambda at: (near.distance(free[at]), free[at].address))
    positions = seat([[at for at in order if _suits(request, free[at], near)] for request in requests])
    return None if positions is None else [free[at] for at in positions]


def _suits(request: DeviceRequest, device: PciDevice, near: Nearness) -> bool:
    return request.matches(device) and near.allows(device, request.affinity)
