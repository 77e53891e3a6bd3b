"""Libvirt's description of the machine: NUMA cells with CPUs, siblings and pages, and its PCI devices."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kilonova.compute.offer import Offer
from kilonova.domain.cpus import parse_cpus
from kilonova.domain.numa import HostCell, Pages
from kilonova.domain.pci import PHYSICAL, STANDARD, VIRTUAL, PciDevice


def cells_in(capabilities: Element, offer: Offer) -> tuple[HostCell, ...]:
    cells = capabilities.iterfind("./host/topology/cells/cell")
    return tuple(_cell(cell, offer) for cell in cells)


def _cell(cell: Element, offer: Offer) -> HostCell:
    cpus = sorted(cell.iterfind("./cpus/cpu"), key=lambda cpu: int(cpu.get("id", "0")))
    numbers = [int(cpu.get("id", "0")) for cpu in cpus]
    cores = {tuple(sorted(parse_cpus(cpu.get("siblings", cpu.get("id", "0"))))) for cpu in cpus}
    pages = [Pages(int(page.get("size", "0")), int(page.text or "0")) for page in cell.iterfind("./pages")]
    return HostCell(
        id=int(cell.get("id", "0")),
        shared=offer.shared_of(numbers),
        dedicated=offer.dedicated_of(numbers),
        cores=tuple(sorted(cores)),
        memory_mb=int(cell.findtext("memory") or "0") // 1024,
        pages=tuple(sorted(pages, key=lambda page: page.size_kb)),
        socket=int(cpus[0].get("socket_id", "0")) if cpus else 0,
    )


def devices_in(documents: Iterable[str]) -> list[PciDevice]:
    """Return the PCI devices in libvirt's node devices, one XML document each."""
    capabilities = (ElementTree.fromstring(document).find("./capability[@type='pci']") for document in documents)
    return sorted((_device(one) for one in capabilities if one is not None), key=lambda device: device.address)


def _device(pci: Element) -> PciDevice:
    parent = pci.find("./capability[@type='phys_function']/address")
    node = pci.find("./numa")
    kind = VIRTUAL if parent is not None else STANDARD
    if pci.find("./capability[@type='virt_functions']") is not None:
        kind = PHYSICAL
    return PciDevice(
        address=_address({tag: pci.findtext(tag) or "0" for tag in ("domain", "bus", "slot", "function")}),
        vendor_id=_id(pci.find("./vendor")),
        product_id=_id(pci.find("./product")),
        type=kind,
        cell=int(node.get("node", "0")) if node is not None else None,
        parent=_address(parent.attrib) if parent is not None else "",
    )


def _address(parts: dict[str, str]) -> str:
    area, bus, slot, function = (int(parts[name], 0) for name in ("domain", "bus", "slot", "function"))
    return f"{area:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _id(element: Element | None) -> str:
    return (element.get("id", "0x0000") if element is not None else "0x0000").removeprefix("0x")
