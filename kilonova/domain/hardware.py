"""The hardware of a host, a guest's request for it, and the host's grant: the host claim.

Placement counts amounts; one pure function here decides which CPUs, which cell and which device. The scheduler calls it
with the facts of all hosts, the host itself when it takes the claim: the host decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from kilonova.domain.numa import CellClaim, CellRules, FreeCell, GuestCell, HostCell, fit_cell, seat
from kilonova.domain.pci import DeviceClaim, DeviceRequest, Nearness, PciDevice, free_devices, pick


class HostHardware(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hardware that the host reports; only what guests may have."""

    cells: tuple[HostCell, ...] = ()
    devices: tuple[PciDevice, ...] = ()


class CpuTopology(msgspec.Struct, frozen=True):
    """The CPU topology that the guest sees."""

    sockets: int
    cores: int
    threads: int


class HardwareRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hardware request of flavor and image beyond amounts. Kept with the server's flavor."""

    cells: tuple[GuestCell, ...] = ()
    rules: CellRules = CellRules()
    emulator_threads: str = ""  # isolate: its own dedicated CPU; share: the host's shared ones
    realtime: tuple[int, ...] = ()
    devices: tuple[DeviceRequest, ...] = ()
    topology: CpuTopology | None = None

    @property
    def needs_claim(self) -> bool:
        return bool(self.cells or self.devices)

    @property
    def emulator_cpus(self) -> int:
        return int(self.emulator_threads == "isolate" and any(cell.dedicated for cell in self.cells))

    @property
    def dedicated_cpus(self) -> int:
        return sum(len(cell.dedicated) for cell in self.cells) + self.emulator_cpus


class HostClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hardware that a host gave to one copy of a guest."""

    cells: tuple[CellClaim, ...] = ()  # in the order of the guest's cells
    devices: tuple[DeviceClaim, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(device.address for device in self.devices)


def fit(requested: HardwareRequest, hardware: HostHardware, claims: Sequence[HostClaim]) -> HostClaim | str:
    """Return the claim, or a sentence with the numbers that fail. The same facts give the same claim."""
    taken = {address for claim in claims for address in claim.addresses}
    devices = free_devices(hardware.devices, taken)
    if not requested.cells:
        picked = pick(requested.devices, devices, Nearness(None, {}))
        return picked if isinstance(picked, str) else HostClaim((), picked)
    if len(hardware.cells) < len(requested.cells):
        return f"needs {len(requested.cells)} NUMA cells, it has {len(hardware.cells)}"
    free = _ordered(requested, hardware, claims, devices)
    tries = [[_fit_one(requested, number, cell) for cell in free] for number in range(len(requested.cells))]
    sockets = {cell.id: cell.socket for cell in hardware.cells}
    lacking = ""
    for seats in _seatings(tries):
        given = [tries[number][at] for number, at in enumerate(seats)]
        near = Nearness({free[at].host.id for at in seats}, sockets)
        picked = pick(requested.devices, devices, near)
        if not isinstance(picked, str):
            return HostClaim(tuple(claim for claim in given if isinstance(claim, CellClaim)), picked)
        lacking = lacking or picked
    return lacking or _why_not(tries)


def lacking_devices(requested: HardwareRequest, hardware: HostHardware, claims: Sequence[HostClaim]) -> str | None:
    """Say why the devices alone do not fit, whichever cells the guest gets; None: they do."""
    taken = {address for claim in claims for address in claim.addresses}
    picked = pick(requested.devices, free_devices(hardware.devices, taken), Nearness(None, {}))
    return picked if isinstance(picked, str) else None


def free_cells(hardware: HostHardware, claims: Iterable[HostClaim]) -> list[FreeCell]:
    given = [cell for claim in claims for cell in claim.cells]
    return [FreeCell.of(cell, given) for cell in hardware.cells]


def _ordered(
    requested: HardwareRequest, hardware: HostHardware, claims: Iterable[HostClaim], devices: Sequence[PciDevice]
) -> list[FreeCell]:
    """Return the cells, emptiest first; those with suitable devices before all others, or after them if none is
    requested."""

    def order(cell: FreeCell) -> tuple[int, ...]:
        here = [device for device in devices if device.cell == cell.host.id]
        suitable = sum(any(wanted.matches(device) for wanted in requested.devices) for device in here)
        cpus = len(cell.dedicated) if requested.dedicated_cpus else cell.shared
        return (-suitable if requested.devices else len(here), -cpus, -cell.free_mb, cell.host.id)

    return sorted(free_cells(hardware, claims), key=order)


def _fit_one(requested: HardwareRequest, number: int, cell: FreeCell) -> CellClaim | str:
    """Fit one guest cell. The emulator's CPU is in the cell of the guest's first one."""
    return fit_cell(cell, requested.cells[number], requested.rules, requested.emulator_cpus if number == 0 else 0)


def _seatings(tries: Sequence[Sequence[CellClaim | str]]) -> Iterator[list[int]]:
    """Yield one seating for each set of host cells: for devices only the set matters."""
    for chosen in combinations(range(len(tries[0])), len(tries)):
        seats = seat([[at for at in chosen if isinstance(row[at], CellClaim)] for row in tries])
        if seats is not None:
            yield seats


def _why_not(tries: Sequence[Sequence[CellClaim | str]]) -> str:
    """Return why the first guest cell that fits nowhere does not; if each fits alone, why not all together."""
    for row in tries:
        reasons = [why for why in row if isinstance(why, str)]
        if len(reasons) == len(row):
            return "; ".join(reasons)
    all_reasons = dict.fromkeys(why for row in tries for why in row if isinstance(why, str))
    return f"needs {len(tries)} NUMA cells at a time: {'; '.join(all_reasons)}"


def conflicts(hardware: HostHardware, claims: Sequence[tuple[str, HostClaim]]) -> list[str]:
    """Return the hardware that two servers both hold, given (server, claim) of all copies on one host.

    Copies of one server that never run together may share a claim, but only the whole claim (rebuild).
    """
    sentences = []
    for at, (server, claim) in enumerate(claims):
        for other, earlier in claims[:at]:
            if other == server and claim == earlier:
                continue
            sentences += [
                f"{what} is given to {other} and to {server}" for what in sorted(_both(hardware, claim, earlier))
            ]
    return sentences


def _both(hardware: HostHardware, one: HostClaim, other: HostClaim) -> set[str]:
    cpus = [{cpu for cell in claim.cells for cpu in cell.host_cpus} for claim in (one, other)]
    left = {device.address for device in free_devices(hardware.devices, one.addresses)}
    known = {device.address for device in hardware.devices}
    devices = {a for a in other.addresses if a in one.addresses or (a in known and a not in left)}
    return {f"CPU {cpu}" for cpu in cpus[0] & cpus[1]} | {f"device {address}" for address in devices}
