"""One libvirtd for all tests of the group, and a driver on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
from tests.conftest import running
from tests.guests.daemon import Libvirt
from tests.guests.tiny_guest import image

IMAGE = "tiny"


@pytest.fixture(scope="session")
def libvirt() -> Iterator[Libvirt]:
    for daemon in running(Libvirt):
        (daemon.dir / "images" / IMAGE).write_bytes(image(f"image:{IMAGE}"))
        yield daemon


@pytest.fixture
def driver(libvirt: Libvirt) -> Iterator[LibvirtDriver]:
    before = os.umask(0)  # QEMU is run by another user than these tests when they are root's
    yield driver_on(libvirt)
    os.umask(before)


def driver_on(libvirt: Libvirt) -> LibvirtDriver:
    return LibvirtDriver(libvirt.uri, "host1", libvirt.guests, libvirt.dir / "images", shutdown_seconds=0.3)
