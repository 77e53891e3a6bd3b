"""The part of a host's hardware that guests may have, by the operator's [compute] and [pci] device_spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kilonova.domain.cpus import format_cpus, parse_cpus
from kilonova.domain.errors import Refused
from kilonova.domain.hardware import HostHardware
from kilonova.domain.pci import DeviceSpec
from kilonova.settings import Settings

Classes = dict[str, tuple[int, int, float]]


@dataclass(frozen=True)
class Offer:
    """The CPUs and devices that a host offers. Without either CPU set, every CPU is shared; with only dedicated CPUs,
    none is."""

    dedicated: frozenset[int] = frozenset()
    shared: frozenset[int] | None = None
    devices: tuple[DeviceSpec, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Offer:
        compute = settings.compute
        dedicated = parse_cpus(compute.cpu_dedicated_set)
        named = parse_cpus(compute.cpu_shared_set) if compute.cpu_shared_set else None
        return cls(dedicated, frozenset() if named is None and dedicated else named, tuple(settings.pci.device_spec))

    def check(self, host: str, cpus: Iterable[int]) -> None:
        there = frozenset(cpus)
        for option, wanted in (("cpu_dedicated_set", self.dedicated), ("cpu_shared_set", self.shared or frozenset())):
            if missing := wanted - there:
                text = f"[compute] {option} names CPU {format_cpus(missing)}; {host} has the CPUs {format_cpus(there)}"
                raise Refused("bad_configuration", text)

    def shared_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        return tuple(cpu for cpu in cpus if self.shared is None or cpu in self.shared)

    def dedicated_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        return tuple(cpu for cpu in cpus if cpu in self.dedicated)


def cpu_classes(hardware: HostHardware) -> Classes:
    """Return VCPU and PCPU, without an empty class: placement accepts no empty inventory."""
    amounts = {
        "VCPU": sum(len(cell.shared) for cell in hardware.cells),
        "PCPU": sum(len(cell.dedicated) for cell in hardware.cells),
    }
    return {name: (amount, 0, 1.0) for name, amount in amounts.items() if amount}
