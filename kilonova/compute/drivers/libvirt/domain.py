"""A guest as libvirt's XML, from its definition and from what the host gave it, and back again."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import msgspec

from kilonova.compute.drivers.libvirt.devices import add_devices
from kilonova.compute.drivers.libvirt.interfaces import Plugged, interfaces, user_network
from kilonova.domain.cpus import format_cpus
from kilonova.domain.guest import GuestSpec
from kilonova.domain.hardware import HostClaim

NAMESPACE = "urn:kilonova:guest"
PREFIX = "kilonova-"
TRANSLATED_MIB = 32  # of TCG's code cache; its default is up to a quarter of the host's memory
KVM = "kvm"


def name_of(server: str, copy: int) -> str:
    """Return a domain's name, by which it is looked up; a copy's number is part of it (law 4)."""
    return f"{PREFIX}{server}-{copy}"


def copy_of(name: str) -> tuple[str, int] | None:
    """The server and copy of a domain, if it is one of ours."""
    server, _, copy = name.removeprefix(PREFIX).rpartition("-")
    return (server, int(copy)) if name.startswith(PREFIX) and server and copy.isdigit() else None


def domain_xml(
    guest: GuestSpec,
    directory: Path,
    accelerator: str,
    owner: str,
    plugged: Sequence[Plugged] = (),
    consoles: Sequence[str] = (),
) -> str:
    """`owner`: whose guest it is; several agents may use one libvirtd. `plugged`: its ports on this host. `consoles`:
    the kinds that users may connect to."""
    domain = Element("domain", type=accelerator)
    _text(domain, "name", name_of(guest.server, guest.copy))
    _text(domain, "uuid", str(uuid.uuid5(uuid.NAMESPACE_URL, name_of(guest.server, guest.copy))))
    _text(domain, "title", " ".join(guest.name.split()) or guest.server)  # libvirt allows no line breaks
    SubElement(domain, "metadata").append(metadata_of(guest, owner))
    _text(domain, "memory", str(guest.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(guest.vcpus))
    if guest.claim is not None:
        _hardware(domain, guest, guest.claim, accelerator)
    else:
        _cpu(domain, guest, accelerator)
    system = SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="pc")
    SubElement(system, "boot", dev="hd")
    features = SubElement(domain, "features")
    SubElement(features, "acpi")
    if accelerator != KVM:
        _text(SubElement(features, "tcg"), "tb-cache", str(TRANSLATED_MIB), unit="MiB")
    _text(domain, "on_crash", "destroy")
    add_devices(SubElement(domain, "devices"), guest, directory, interfaces(plugged), consoles)
    if (command := user_network(plugged)) is not None:
        domain.append(command)
    return ElementTree.tostring(domain, encoding="unicode")


def metadata_of(guest: GuestSpec, owner: str) -> Element:
    """The definition, without the secrets of its volumes: all users of libvirt can read it (law 13)."""
    volumes = [msgspec.structs.replace(one, connection={}) for one in guest.volumes]
    element = Element(f"{{{NAMESPACE}}}guest", owner=owner)
    element.text = _for_xml(msgspec.json.encode(msgspec.structs.replace(guest, volumes=volumes)).decode())
    return element


def _for_xml(json: str) -> str:
    """Escape the only two characters that JSON leaves and XML forbids. A user may put them into a server's metadata."""
    return json.replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")


def spec_in(domain: Element) -> GuestSpec | None:
    """The definition of a domain; None if it is not one of ours."""
    element = domain.find(f"./metadata/{{{NAMESPACE}}}guest")
    return None if element is None or not element.text else msgspec.json.decode(element.text, type=GuestSpec)


def owner_in(domain: Element) -> str:
    element = domain.find(f"./metadata/{{{NAMESPACE}}}guest")
    return "" if element is None else element.get("owner", "")


def _hardware(domain: Element, guest: GuestSpec, claim: HostClaim, accelerator: str) -> None:
    """Pinned CPUs, host cells and page sizes, as the host gave them."""
    if not claim.cells:
        _cpu(domain, guest, accelerator)
        return
    tune, numa, backing = SubElement(domain, "cputune"), SubElement(domain, "numatune"), None
    cells = SubElement(_cpu(domain, guest, accelerator), "numa")
    emulator = [cpu for cell in claim.cells for cpu in cell.emulator]
    for number, cell in enumerate(claim.cells):
        for vcpu, cpu in cell.pinning:
            SubElement(tune, "vcpupin", vcpu=str(vcpu), cpuset=str(cpu))
        SubElement(numa, "memnode", cellid=str(number), mode="strict", nodeset=str(cell.cell))
        cpus = format_cpus((*cell.shared, *(vcpu for vcpu, _ in cell.pinning)))
        SubElement(cells, "cell", id=str(number), cpus=cpus, memory=str(cell.memory_mb), unit="MiB")
        if guest.hardware is not None and guest.hardware.rules.page_size not in ("", "small"):
            pages = backing if backing is not None else SubElement(SubElement(domain, "memoryBacking"), "hugepages")
            backing = pages
            SubElement(pages, "page", size=str(cell.page_kb), unit="KiB", nodeset=str(number))
    if emulator:
        SubElement(tune, "emulatorpin", cpuset=format_cpus(emulator))


def _cpu(domain: Element, guest: GuestSpec, accelerator: str) -> Element:
    cpu = SubElement(domain, "cpu", {"mode": "host-model"} if accelerator == KVM else {})
    topology = guest.hardware.topology if guest.hardware is not None else None
    if topology is not None:
        counts = {"sockets": topology.sockets, "cores": topology.cores, "threads": topology.threads}
        SubElement(cpu, "topology", {name: str(count) for name, count in counts.items()})
    return cpu


def _text(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text
