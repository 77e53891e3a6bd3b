"""The serial line and the screen in a guest's definition."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, tostring

import pytest

from kilonova.compute.drivers.libvirt.console_devices import (
    LONGEST,
    SOCKET,
    add_consoles,
    consoles_of,
    keep_private,
    open_screen,
)
from kilonova.domain.console import KINDS, SERIAL, VNC


def devices(place: Path, kinds: tuple[str, ...] = KINDS) -> str:
    element = Element("devices")
    add_consoles(element, place, kinds)
    return tostring(element, encoding="unicode")


def test_nothing_listens_on_the_network_and_the_line_is_logged() -> None:
    xml = devices(Path("/there"))
    assert '<listen type="none" />' in xml and "passwd" not in xml and "port" not in xml
    assert f'<source mode="bind" path="/there/{SOCKET}" /><log file="/there/console.log" append="on" />' in xml


@pytest.mark.parametrize("kinds", [(), (VNC,)])
def test_without_a_serial_console_the_log_stays(kinds: tuple[str, ...]) -> None:
    xml = devices(Path("/there"), kinds)
    assert '<serial type="file"><source path="/there/console.log" append="on" /></serial>' in xml
    assert ("<graphics" in xml, "<video" in xml, "<input" in xml) == (VNC in kinds,) * 3


def test_the_pointer_of_a_screen_is_absolute() -> None:
    """Without one, the pointer in the guest drifts away from the one in the browser."""
    assert '<input type="tablet" bus="virtio" />' in devices(Path("/there"), (VNC,))


def test_a_path_that_no_socket_can_have() -> None:
    longest = LONGEST - len(SOCKET) - 1
    assert 'type="unix"' in devices(Path("/" + "x" * (longest - 1)))
    assert 'type="unix"' not in devices(Path("/" + "x" * longest))


def test_the_line_is_for_the_agent_alone(tmp_path: Path) -> None:
    keep_private(tmp_path)  # a guest that has none
    (tmp_path / SOCKET).touch(mode=0o777)
    keep_private(tmp_path)
    assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600


class Domain:
    """What libvirt says of a guest that runs."""

    def __init__(self, xml: str = "", screen: int = -1) -> None:
        self._xml, self._screen = xml, screen

    def XMLDesc(self, flags: int) -> str:
        return f"<domain>{self._xml}</domain>"

    def openGraphicsFD(self, number: int, flags: int) -> int:
        assert (number, flags) == (0, 0)
        return self._screen


@pytest.mark.parametrize("kinds", [(), (VNC,), (SERIAL,), KINDS])
def test_a_guest_has_the_consoles_that_it_was_started_with(kinds: tuple[str, ...]) -> None:
    domain: Any = Domain(devices(Path("/there"), kinds))
    assert consoles_of(domain) == kinds


@pytest.mark.parametrize("listen", ['type="address"', ""])
def test_a_screen_on_the_network_is_not_ours(listen: str) -> None:
    domain: Any = Domain(f'<devices><graphics type="vnc"><listen {listen} /></graphics></devices>')
    assert consoles_of(domain) == ()


def test_a_screen_is_a_connection_that_holds_nobody_up() -> None:
    qemu, ours = socket.socketpair()
    domain: Any = Domain(screen=ours.detach())
    with qemu, open_screen(domain) as screen:
        qemu.sendall(b"RFB")
        assert screen.recv(3) == b"RFB"
        with pytest.raises(BlockingIOError):
            screen.recv(1)
