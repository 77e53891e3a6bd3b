"""Guests in libvirt: the calls of the driver's verbs. Every function runs in a thread of the connection; each reads
the present state first, so that doing it twice ends the same."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import libvirt
import libvirt_qemu
import msgspec

from kilonova.compute.drivers.libvirt import console_devices
from kilonova.compute.drivers.libvirt.devices import (
    ALIAS,
    attached_in,
    free_target,
    same_source,
    targets_in,
    volume_disk,
)
from kilonova.compute.drivers.libvirt.domain import NAMESPACE, copy_of, metadata_of, name_of, owner_in, spec_in
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec, GuestVolume

OFF = (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED, libvirt.VIR_DOMAIN_NOSTATE)
METADATA_PREFIX = "kilonova"
SHOW_SECONDS = 20.0  # for QEMU to find its server again
UNPLUG_SECONDS = 20.0  # for the guest to let go of a disk
LOOK_SECONDS = 0.1
STATES = libvirt.VIR_DOMAIN_STATS_STATE
NO_WAITING = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT  # one busy guest must not delay the report of all


class DefinedDomain(NamedTuple):
    """The definition of a domain."""

    owner: str
    spec: GuestSpec | None


def powers(connection: libvirt.virConnect) -> dict[str, bool]:
    """Return whether each of our domains runs, by name, with one call for all."""
    stats = connection.getAllDomainStats(STATES, NO_WAITING)
    named = ((domain.name(), values.get("state.state", libvirt.VIR_DOMAIN_NOSTATE)) for domain, values in stats)
    return {name: state not in OFF for name, state in named if copy_of(name) is not None}


def report(
    connection: libvirt.virConnect, known: Mapping[str, DefinedDomain]
) -> tuple[dict[str, bool], dict[str, DefinedDomain]]:
    """`powers`, and the definitions of those that are not known yet."""
    running = powers(connection)
    return running, {
        name: definition for name in running if name not in known and (definition := _known(connection, name))
    }


def _known(connection: libvirt.virConnect, name: str) -> DefinedDomain | None:
    domain = _find(connection, name)
    if domain is None:
        return None
    element = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    return DefinedDomain(owner_in(element), spec_in(element))


def definition(connection: libvirt.virConnect, server: str, copy: int) -> GuestSpec | None:
    known = _known(connection, name_of(server, copy))
    return None if known is None else known.spec


def is_running(connection: libvirt.virConnect, server: str, copy: int) -> bool | None:
    """Return True if the guest runs; None if there is no such domain."""
    domain = _find(connection, name_of(server, copy))
    return None if domain is None else _runs(domain)


def define(connection: libvirt.virConnect, xml: str) -> None:
    """Define a guest. A running one goes on as it is; the new definition counts from its next start."""
    connection.defineXML(xml)


def start(connection: libvirt.virConnect, server: str, copy: int) -> None:
    domain = _find(connection, name_of(server, copy))
    if domain is None:
        raise Failed("not_defined", f"copy {copy} of server {server} is not defined here")
    if _runs(domain):
        return
    element = ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    spec, attached = spec_in(element), attached_in(element)
    for volume in spec.volumes if spec is not None else []:
        if volume.attachment not in attached:
            text = f"volume {volume.volume} of server {server} is not connected to this host"
            raise Failed("volume_unreachable", text)
    try:
        domain.create()
    except libvirt.libvirtError:
        if not _runs(domain):  # else it was started concurrently
            raise


def ask_to_shut_down(connection: libvirt.virConnect, server: str, copy: int) -> None:
    domain = _find(connection, name_of(server, copy))
    if domain is not None and _runs(domain):
        with contextlib.suppress(libvirt.libvirtError):  # it may end now, or not know how: it is ended then
            domain.shutdown()


def end(connection: libvirt.virConnect, server: str, copy: int) -> None:
    domain = _find(connection, name_of(server, copy))
    if domain is None or not _runs(domain):
        return
    try:
        domain.destroy()
    except libvirt.libvirtError:
        if _runs(domain):  # else it has just ended by itself
            raise


def remove(connection: libvirt.virConnect, server: str, copy: int) -> None:
    """End the guest and undefine its domain."""
    end(connection, server, copy)
    domain = _find(connection, name_of(server, copy))
    if domain is not None:
        try:
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        except libvirt.libvirtError:
            if _find(connection, name_of(server, copy)) is not None:
                raise


def attach(connection: libvirt.virConnect, server: str, copy: int, volume: GuestVolume) -> None:
    """Attach the volume to the definition and, if it runs, to the guest, opened by this connection."""
    domain = _need(connection, server, copy)
    for flags, described in _configurations(domain):
        element = ElementTree.fromstring(domain.XMLDesc(described))
        there = attached_in(element).get(volume.attachment)
        target = "" if there is None else _target(there)
        disk = volume_disk(volume, target or free_target(targets_in(element), volume.device))
        if there is not None:
            if same_source(there, disk):
                continue
            _detach(domain, there, flags, volume.attachment)
        domain.attachDeviceFlags(ElementTree.tostring(disk, encoding="unicode"), flags)


def detach(connection: libvirt.virConnect, server: str, copy: int, attachment: str) -> None:
    domain = _find(connection, name_of(server, copy))
    if domain is None:
        return
    for flags, described in _configurations(domain):
        there = attached_in(ElementTree.fromstring(domain.XMLDesc(described))).get(attachment)
        if there is not None:
            _detach(domain, there, flags, attachment)


def running_with(connection: libvirt.virConnect, attachment: str) -> dict[str, int]:
    """The names of running guests that have this volume, and the size in bytes that each sees."""
    sizes = {}
    for name in (name for name, on in powers(connection).items() if on):
        domain = _find(connection, name)
        if domain is not None and (disk := _attached(domain).get(attachment)) is not None:
            sizes[name] = int(domain.blockInfo(_target(disk))[0])
    return sizes


def pause(connection: libvirt.virConnect, name: str) -> None:
    """Pause the guest. When this returns, no disk request of it is under way."""
    if (domain := _find(connection, name)) is not None and domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
        domain.suspend()


def go_on(connection: libvirt.virConnect, name: str) -> None:
    """Resume after `pause`. A guest that is paused for another reason, as a disk error or a migration, stays so."""
    if (domain := _find(connection, name)) is None or not _is_suspended(domain):
        return
    try:
        domain.resume()
    except libvirt.libvirtError:
        if _is_suspended(domain):  # not one that was resumed concurrently
            raise


def _is_suspended(domain: libvirt.virDomain) -> bool:
    state, reason, *_ = domain.state()
    return bool(state == libvirt.VIR_DOMAIN_PAUSED and reason == libvirt.VIR_DOMAIN_PAUSED_USER)


def show_size(connection: libvirt.virConnect, name: str, attachment: str, size: int) -> None:
    """Make QEMU read the new size of a volume, then notify the guest.

    QEMU reads the size only when it connects to the volume's server, and reconnects only at its next request.
    """
    ends = time.monotonic() + SHOW_SECONDS
    read = f'qemu-io -d /machine/peripheral/{ALIAS}{attachment}/virtio-backend "read 0 512"'
    while (domain := _find(connection, name)) is not None and attachment in (disks := _attached(domain)):
        try:
            libvirt_qemu.qemuMonitorCommand(domain, read, libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)
            domain.blockResize(_target(disks[attachment]), size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
            return
        except libvirt.libvirtError as error:
            if not _runs(domain):
                return
            if time.monotonic() > ends:
                raise Failed("volume_size", f"{name}: its disk does not grow: {error.get_error_message()}") from error
        time.sleep(LOOK_SECONDS)


def _attached(domain: libvirt.virDomain) -> dict[str, Element]:
    return attached_in(ElementTree.fromstring(domain.XMLDesc(0)))


def note_volume(
    connection: libvirt.virConnect, server: str, copy: int, attachment: str, volume: GuestVolume | None
) -> None:
    """Record the volume of this attachment in the domain's metadata, or remove it."""
    domain = _find(connection, name_of(server, copy))
    element = None if domain is None else ElementTree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    spec = None if element is None else spec_in(element)
    if domain is None or element is None or spec is None:
        return
    volumes = [one for one in spec.volumes if one.attachment != attachment] + ([volume] if volume is not None else [])
    document = ElementTree.tostring(
        metadata_of(msgspec.structs.replace(spec, volumes=volumes), owner_in(element)), encoding="unicode"
    )
    kind, flags = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(kind, document, METADATA_PREFIX, NAMESPACE, flags)


def consoles(connection: libvirt.virConnect, server: str, copy: int) -> tuple[str, ...]:
    domain = _find(connection, name_of(server, copy))
    if domain is None:
        raise Failed("no_guest", f"there is no copy {copy} of server {server} here", final=True)
    if not _runs(domain):
        raise Failed("guest_off", f"copy {copy} of server {server} does not run")
    return console_devices.consoles_of(domain)


def open_screen(connection: libvirt.virConnect, server: str, copy: int) -> socket.socket:
    return console_devices.open_screen(_need(connection, server, copy))


def _configurations(domain: libvirt.virDomain) -> list[tuple[int, int]]:
    """Return the configurations to change, each with the flags to change and to read it: the running guest, then the
    definition.

    In this order a definition never has a device that the guest could not get.
    """
    config = (libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_XML_INACTIVE)
    return [(libvirt.VIR_DOMAIN_AFFECT_LIVE, 0), config] if _runs(domain) else [config]


def _detach(domain: libvirt.virDomain, disk: Element, flags: int, attachment: str) -> None:
    """Detach a disk. A running guest releases it when it wants to: it is gone once it is not in the domain's XML."""
    try:
        domain.detachDeviceFlags(ElementTree.tostring(disk, encoding="unicode"), flags)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_DEVICE_MISSING:
            raise
    if flags != libvirt.VIR_DOMAIN_AFFECT_LIVE:
        return
    ends = time.monotonic() + UNPLUG_SECONDS
    while attachment in attached_in(ElementTree.fromstring(domain.XMLDesc(0))):
        if time.monotonic() > ends:
            text = f"{domain.name()}: the guest did not release its disk {_target(disk)} within {UNPLUG_SECONDS:.0f} s"
            raise Failed("volume_busy", text)
        time.sleep(LOOK_SECONDS)


def _target(disk: Element) -> str:
    target = disk.find("./target")
    return "" if target is None else target.get("dev", "")


def _find(connection: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    try:
        return connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _need(connection: libvirt.virConnect, server: str, copy: int) -> libvirt.virDomain:
    domain = _find(connection, name_of(server, copy))
    if domain is None:
        raise Failed("not_defined", f"copy {copy} of server {server} is not defined here")
    return domain


def _runs(domain: libvirt.virDomain) -> bool:
    try:
        return domain.state()[0] not in OFF
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:  # undefined meanwhile
            return False
        raise
