"""A guest as libvirt wants it told: XML from what the guest is and what the host gave it, and back again."""

from __future__ import annotations

import uuid
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import msgspec

from kilonova.compute.drivers.libvirt.disks import CONSOLE, DISK
from kilonova.domain.cpus import told
from kilonova.domain.guest import GuestSpec
from kilonova.domain.hardware import HostClaim

NAMESPACE = "urn:kilonova:guest"
PREFIX = "kilonova-"


def name_of(server: str, copy: int) -> str:
    """Domains are found by their names; a copy's number is part of it (law 4)."""
    return f"{PREFIX}{server}-{copy}"


def copy_of(name: str) -> tuple[str, int] | None:
    """The server and copy of a domain, if it is one of ours."""
    server, _, copy = name.removeprefix(PREFIX).rpartition("-")
    return (server, int(copy)) if name.startswith(PREFIX) and server and copy.isdigit() else None


def domain_xml(guest: GuestSpec, place: Path, accelerator: str) -> str:
    domain = Element("domain", type=accelerator)
    _text(domain, "name", name_of(guest.server, guest.copy))
    _text(domain, "uuid", str(uuid.uuid5(uuid.NAMESPACE_URL, name_of(guest.server, guest.copy))))
    _text(domain, "title", guest.name or guest.server)
    metadata = SubElement(SubElement(domain, "metadata"), f"{{{NAMESPACE}}}guest")
    metadata.text = msgspec.json.encode(guest).decode()
    _text(domain, "memory", str(guest.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(guest.vcpus))
    if guest.claim is not None:
        _hardware(domain, guest, guest.claim)
    else:
        _cpu(domain, guest)
    system = SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="pc")
    SubElement(system, "boot", dev="hd")
    SubElement(SubElement(domain, "features"), "acpi")
    _text(domain, "on_crash", "destroy")
    _devices(SubElement(domain, "devices"), guest, place)
    return ElementTree.tostring(domain, encoding="unicode")


def spec_in(xml: str) -> GuestSpec | None:
    """What a domain was defined from."""
    found = ElementTree.fromstring(xml).find(f"./metadata/{{{NAMESPACE}}}guest")
    return None if found is None or not found.text else msgspec.json.decode(found.text, type=GuestSpec)


def _hardware(domain: Element, guest: GuestSpec, claim: HostClaim) -> None:
    """Pinned CPUs, host cells and page sizes, as the host gave them."""
    if not claim.cells:
        _cpu(domain, guest)
        return
    tune, numa, backing = SubElement(domain, "cputune"), SubElement(domain, "numatune"), None
    cells = SubElement(_cpu(domain, guest), "numa")
    emulator = [cpu for cell in claim.cells for cpu in cell.emulator]
    for number, cell in enumerate(claim.cells):
        for vcpu, cpu in cell.pinning:
            SubElement(tune, "vcpupin", vcpu=str(vcpu), cpuset=str(cpu))
        SubElement(numa, "memnode", cellid=str(number), mode="strict", nodeset=str(cell.cell))
        cpus = told((*cell.shared, *(vcpu for vcpu, _ in cell.pinning)))
        SubElement(cells, "cell", id=str(number), cpus=cpus, memory=str(cell.memory_mb), unit="MiB")
        if guest.wish is not None and guest.wish.rules.page_size not in ("", "small"):
            pages = backing if backing is not None else SubElement(SubElement(domain, "memoryBacking"), "hugepages")
            backing = pages
            SubElement(pages, "page", size=str(cell.page_kb), unit="KiB", nodeset=str(number))
    if emulator:
        SubElement(tune, "emulatorpin", cpuset=told(emulator))


def _cpu(domain: Element, guest: GuestSpec) -> Element:
    cpu = SubElement(domain, "cpu")
    topology = guest.wish.topology if guest.wish is not None else None
    if topology is not None:
        counts = {"sockets": topology.sockets, "cores": topology.cores, "threads": topology.threads}
        SubElement(cpu, "topology", {name: str(count) for name, count in counts.items()})
    return cpu


def _devices(devices: Element, guest: GuestSpec, place: Path) -> None:
    disk = SubElement(devices, "disk", type="file", device="disk")
    SubElement(disk, "driver", name="qemu", type="qcow2")
    SubElement(disk, "source", file=str(place / DISK))
    SubElement(disk, "target", dev="vda", bus="virtio")
    serial = SubElement(devices, "serial", type="file")
    SubElement(serial, "source", path=str(place / CONSOLE), append="on")
    SubElement(devices, "memballoon", model="none")
    for address in guest.claim.addresses if guest.claim is not None else ():
        area, bus, rest = address.split(":")
        slot, function = rest.split(".")
        parts = {"domain": area, "bus": bus, "slot": slot, "function": function}
        given = SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
        SubElement(SubElement(given, "source"), "address", {name: f"0x{value}" for name, value in parts.items()})


def _text(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text
