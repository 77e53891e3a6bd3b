"""The serial line and the screen in a guest's definition."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import pytest

from kilonova.compute.drivers.libvirt.console_devices import LONGEST, SOCKET, add_consoles
from kilonova.domain.console import KINDS, VNC


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
