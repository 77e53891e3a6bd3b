"""The devices of a guest as libvirt's XML: disks in the order in which the guest counts them, volumes over NBD, serial
line, random numbers, PCI devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from kilonova.compute.drivers.libvirt.console_devices import add_consoles
from kilonova.compute.drivers.libvirt.disks import CONFIG_DRIVE, DISK, SWAP, boots_from_volume, local_bytes
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.json import JsonObject

ALIAS = "ua-"  # libvirt's prefix for user-defined aliases; the rest is the attachment's id
NBD = "nbd"
RECONNECT_SECONDS = 60  # that QEMU waits for a volume server which is restarted, before the guest sees errors
CONFIG_DRIVE_TARGET = "hda"


def add_devices(
    devices: Element,
    guest: GuestSpec,
    directory: Path,
    interfaces: Sequence[Element] = (),
    consoles: Sequence[str] = (),
) -> None:
    """`interfaces`: the network devices, one for each port. `consoles`: the kinds that users may connect to."""
    root = next((one for one in guest.volumes if one.is_root), None)
    names = list(local_bytes(guest)) if boots_from_volume(guest) else [DISK, *local_bytes(guest)]
    taken: list[str] = []
    if root is not None and is_connected(root):
        devices.append(volume_disk(root, "vda"))
    if root is not None:
        taken.append("vda")
    for name in names:
        target = free_target(taken)
        taken.append(target)
        devices.append(_file_disk(directory / name, target, "raw" if name == SWAP else "qcow2"))
    for volume in guest.volumes:
        if volume is not root and is_connected(volume):
            target = free_target(taken, volume.device)
            taken.append(target)
            devices.append(volume_disk(volume, target))
    if (directory / CONFIG_DRIVE).is_file():
        devices.append(_config_drive(directory / CONFIG_DRIVE))
    devices.extend(interfaces)
    add_consoles(devices, directory, consoles)
    SubElement(devices, "memballoon", model="none")
    random = SubElement(devices, "rng", model="virtio")
    SubElement(random, "backend", model="random").text = "/dev/urandom"
    _pci_devices(devices, guest)


def is_connected(volume: GuestVolume) -> bool:
    return bool(volume.connection)


def free_target(taken: Iterable[str], wanted: str = "") -> str:
    """Return the next free disk name, or the requested one (/dev/vdb) if it is free. Raise `Failed` if none is left."""
    used = set(taken)
    name = wanted.removeprefix("/dev/")
    if name not in used and len(name) == 3 and name.startswith("vd") and name[2] in ascii_lowercase:
        return name
    free = next((f"vd{letter}" for letter in ascii_lowercase if f"vd{letter}" not in used), None)
    if free is None:
        raise Failed("too_many_disks", f"a guest can have {len(ascii_lowercase)} disks at most", final=True)
    return free


def _file_disk(path: Path, target: str, disk_format: str) -> Element:
    disk = Element("disk", type="file", device="disk")
    SubElement(disk, "driver", name="qemu", type=disk_format, discard="unmap")
    SubElement(disk, "source", file=str(path))
    SubElement(disk, "target", dev=target, bus="virtio")
    if path.name != DISK:
        SubElement(disk, "serial").text = path.stem  # for guests: swap and ephemeral disks, not volumes
    return disk


def _config_drive(path: Path) -> Element:
    disk = Element("disk", type="file", device="cdrom")
    SubElement(disk, "driver", name="qemu", type="raw")
    SubElement(disk, "source", file=str(path))
    SubElement(disk, "target", dev=CONFIG_DRIVE_TARGET, bus="ide")
    SubElement(disk, "readonly")
    return disk


def volume_disk(volume: GuestVolume, target: str) -> Element:
    """Return the element of a volume that QEMU itself opens. Raise `Failed` for another type of connection."""
    kind, data = volume.connection.get("driver_volume_type"), volume.connection.get("data", {})
    if kind != NBD:
        text = f"volume {volume.volume}: its connection is of the type {kind!r}; the libvirt driver opens {NBD!r} alone"
        raise Failed("volume_unsupported", text, final=True)
    disk = Element("disk", type="network", device="disk")
    SubElement(disk, "driver", name="qemu", type="raw", discard="unmap")
    disk.append(_nbd_source(volume, data))
    SubElement(disk, "target", dev=target, bus="virtio")
    SubElement(disk, "serial").text = volume.volume
    SubElement(disk, "alias", name=ALIAS + volume.attachment)
    if data.get("access_mode") == "ro":
        SubElement(disk, "readonly")
    if data.get("multiattach"):
        SubElement(disk, "shareable")
    return disk


def _nbd_source(volume: GuestVolume, data: JsonObject) -> Element:
    source = Element("source", protocol=NBD, name=str(data.get("export") or volume.volume))
    if data.get("tls"):
        source.set("tls", "yes")  # with the certificates that qemu.conf names
    if data.get("socket"):
        SubElement(source, "host", transport="unix", socket=str(data["socket"]))
    elif data.get("target_host"):
        SubElement(source, "host", name=str(data["target_host"]), port=str(data.get("target_port", 10809)))
    else:
        raise Failed("volume_unreachable", f"volume {volume.volume}: its connection has neither socket nor target_host")
    SubElement(source, "reconnect", delay=str(RECONNECT_SECONDS))
    return source


def attached_in(domain: Element) -> dict[str, Element]:
    """Return the disks of volumes in a domain's XML, by attachment."""
    disks = {}
    for disk in domain.iterfind("./devices/disk"):
        alias = disk.find("./alias")
        name = "" if alias is None else alias.get("name", "")
        if name.startswith(ALIAS):
            disks[name.removeprefix(ALIAS)] = disk
    return disks


def targets_in(domain: Element) -> list[str]:
    return [target.get("dev", "") for target in domain.iterfind("./devices/disk/target")]


def same_source(one: Element, other: Element) -> bool:
    """Return whether two disks are opened in the same way."""
    return _source(one) == _source(other)


def _source(disk: Element) -> tuple[Any, ...]:
    source = disk.find("./source")
    if source is None:
        return ()
    hosts = [tuple(sorted(host.attrib.items())) for host in source.iterfind("./host")]
    return source.get("protocol"), source.get("name"), source.get("tls") == "yes", hosts


def _pci_devices(devices: Element, guest: GuestSpec) -> None:
    for address in guest.claim.addresses if guest.claim is not None else ():
        area, bus, rest = address.split(":")
        slot, function = rest.split(".")
        parts = {"domain": area, "bus": bus, "slot": slot, "function": function}
        given = SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
        SubElement(SubElement(given, "source"), "address", {name: f"0x{value}" for name, value in parts.items()})
