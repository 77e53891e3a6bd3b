"""The network devices of a guest as libvirt's XML, one for each port, in the order of the ports."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, register_namespace

from kilonova.compute.network.user import qemu_arguments
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import Plug

Plugged = tuple[GuestPort, Plug]
QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
FIRST_SLOT = 0x10  # libvirt gives out PCI slots from below, and does not know of those on QEMU's command line
register_namespace("qemu", QEMU_NAMESPACE)


def interfaces(plugged: Sequence[Plugged]) -> list[Element]:
    """Return the interfaces of the ports that have a tap; see `user_network` for the others."""
    return [_tap(port, plug) for port, plug in plugged if plug.kind == "tap"]


def _tap(port: GuestPort, plug: Plug) -> Element:
    """Return the element of a tap, which belongs to the host network: libvirt opens it and neither creates nor removes
    it."""
    interface = Element("interface", type="ethernet")
    SubElement(interface, "mac", address=port.mac)
    SubElement(interface, "target", dev=plug.device, managed="no")
    SubElement(interface, "model", type="virtio")
    SubElement(interface, "mtu", size=str(plug.mtu))
    return interface


def user_network(plugged: Sequence[Plugged]) -> Element | None:
    """Return QEMU's own network for the ports without a tap; None if there are none. libvirt's element cannot forward
    ports."""
    command = Element(f"{{{QEMU_NAMESPACE}}}commandline")
    for index, (port, plug) in enumerate(plugged):
        if plug.kind == "user":
            for argument in qemu_arguments(port, plug, index=index, slot=FIRST_SLOT + index):
                SubElement(command, f"{{{QEMU_NAMESPACE}}}arg", value=argument)
    return command if len(command) else None
