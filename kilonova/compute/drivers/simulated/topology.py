"""The inside of a simulated machine: NUMA cells, cores, memory pages and PCI cards, built from a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kilonova.compute.offer import Offer
from kilonova.domain.hardware import HostHardware
from kilonova.domain.hardware_options import SimulatedCard
from kilonova.domain.numa import HostCell, Pages
from kilonova.domain.pci import PHYSICAL, STANDARD, VIRTUAL, PciDevice, usable

SMALL_PAGE_KB = 4
FIRST_BUS = 0x81  # where add-in cards of a two-socket machine usually are
FUNCTIONS = 8  # of one slot


@dataclass(frozen=True)
class SimulatedTopology:
    nodes: int = 1
    threads: int = 1  # of each core
    huge_pages: Mapping[int, int] = field(default_factory=dict)  # kB: pages in each cell
    cards: Sequence[SimulatedCard] = ()


def hardware_of(topology: SimulatedTopology, vcpus: int, memory_mb: int, offer: Offer) -> HostHardware:
    """Return the hardware of a host. CPUs are numbered core by core, cell by cell; the last cells may be smaller."""
    cores = [tuple(range(at, min(at + topology.threads, vcpus))) for at in range(0, vcpus, topology.threads)]
    nodes = min(topology.nodes, len(cores))
    cells = []
    for number in range(nodes):
        mine = cores[number * len(cores) // nodes : (number + 1) * len(cores) // nodes]
        cells.append(_cell(number, mine, memory_mb // nodes, topology.huge_pages, offer))
    return HostHardware(tuple(cells), usable(_devices(topology.cards), offer.devices))


def _cell(
    number: int, cores: Sequence[tuple[int, ...]], memory_mb: int, huge: Mapping[int, int], offer: Offer
) -> HostCell:
    cpus = [cpu for core in cores for cpu in core]
    reserved = sum(size * count for size, count in huge.items())
    small = Pages(SMALL_PAGE_KB, max(memory_mb * 1024 - reserved, 0) // SMALL_PAGE_KB)
    return HostCell(
        id=number,
        shared=offer.shared_of(cpus),
        dedicated=offer.dedicated_of(cpus),
        cores=tuple(cores),
        memory_mb=memory_mb,
        pages=(small, *(Pages(size, huge[size]) for size in sorted(huge))),
        socket=number,
    )


def _devices(cards: Sequence[SimulatedCard]) -> list[PciDevice]:
    """Return the devices of the cards: each card on its own bus, followed by its virtual functions."""
    devices: list[PciDevice] = []
    single = [card for card in cards for _ in range(card.count)]
    for bus, card in enumerate(single, FIRST_BUS):
        whole = PciDevice(
            address=_address(bus, 0),
            vendor_id=card.vendor_id.lower(),
            product_id=card.product_id.lower(),
            type=PHYSICAL if card.vfs else STANDARD,
            cell=card.numa_node,
        )
        product = (card.vf_product_id or card.product_id).lower()
        part = replace(whole, product_id=product, type=VIRTUAL, parent=whole.address)
        devices += [whole, *(replace(part, address=_address(bus, number)) for number in range(1, card.vfs + 1))]
    return devices


def _address(bus: int, number: int) -> str:
    return f"{bus >> 8:04x}:{bus & 0xFF:02x}:{number // FUNCTIONS:02x}.{number % FUNCTIONS}"
