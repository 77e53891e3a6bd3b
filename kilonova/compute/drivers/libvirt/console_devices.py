"""The serial line and the screen of a guest, for the agent only.

The line is a unix socket in the guest's directory, which libvirt makes for QEMU's user alone. The screen has no socket:
libvirt hands out connections. The guest's serial output goes to its console file too, with or without a connected user.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from kilonova.compute.drivers.libvirt.console import CONSOLE
from kilonova.domain.console import SERIAL, VNC

if TYPE_CHECKING:
    import libvirt

SOCKET = "tty.sock"
LONGEST = 107  # bytes of a unix socket's path
VIDEO_KIB = "16384"
SCREEN = 0  # the first one


def add_consoles(devices: Element, directory: Path, kinds: Collection[str]) -> None:
    if SERIAL in kinds and is_possible(directory):
        serial = SubElement(devices, "serial", type="unix")
        SubElement(serial, "source", mode="bind", path=str(directory / SOCKET))
        SubElement(serial, "log", file=str(directory / CONSOLE), append="on")
    else:
        serial = SubElement(devices, "serial", type="file")
        SubElement(serial, "source", path=str(directory / CONSOLE), append="on")
    if VNC in kinds:
        graphics = SubElement(devices, "graphics", type="vnc", sharePolicy="force-shared")
        SubElement(graphics, "listen", type="none")
        SubElement(SubElement(devices, "video"), "model", type="vga", vram=VIDEO_KIB, heads="1")
        SubElement(
            devices, "input", type="tablet", bus="virtio"
        )  # a browser knows where its pointer is, not how it moved


def is_possible(directory: Path) -> bool:
    """Return True if the socket's path is short enough for the kernel. Otherwise the guest has a console log only."""
    return len(os.fsencode(directory / SOCKET)) <= LONGEST


def keep_private(directory: Path) -> None:
    """Make the socket private: libvirt creates it for QEMU's user and group, with its own umask."""
    with contextlib.suppress(FileNotFoundError):
        (directory / SOCKET).chmod(stat.S_IRUSR | stat.S_IWUSR)


def consoles_of(domain: libvirt.virDomain) -> tuple[str, ...]:
    """Return the consoles that the guest was started with: its definition may be newer."""
    devices = ElementTree.fromstring(domain.XMLDesc(0))
    paths = {VNC: "./devices/graphics[@type='vnc']/listen[@type='none']", SERIAL: "./devices/serial[@type='unix']"}
    return tuple(kind for kind, path in paths.items() if devices.find(path) is not None)


def open_screen(domain: libvirt.virDomain) -> socket.socket:
    """A connection to QEMU's VNC server."""
    connected = socket.socket(fileno=domain.openGraphicsFD(SCREEN, 0))
    connected.setblocking(False)
    return connected
