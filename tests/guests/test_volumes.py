"""Volumes of a real guest over NBD: plugged while it runs and while it is off, reported, and no secret told."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import unittest.mock
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import msgspec
import pytest

from kilonova.compute.drivers.libvirt.devices import attached_in
from kilonova.compute.drivers.libvirt.domain import name_of
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.image_bytes import DiskRoute
from tests.guests.conftest import IMAGE, driver_on
from tests.guests.daemon import Libvirt
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver

A = "5e7e0000-0000-4000-8000-0000000000aa"
VOLUME_BYTES = 1024 * 1024
SECRET = "cafebabe-the-secret"
GUEST = GuestSpec(server=A, copy=1, name="with volumes", vcpus=1, memory_mb=32, disk_gb=1, image=IMAGE)


@pytest.fixture
def socket(libvirt: Libvirt) -> Iterator[Path]:
    """An NBD server with two exports of one name; QEMU may be another user."""
    folder = libvirt.dir / "volumes"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "volume").write_bytes(bytes(VOLUME_BYTES))
    path = folder / "nbd.sock"
    command = ["qemu-nbd", "-k", str(path), "-f", "raw", "-x", "one", "-t", "-e", "4", str(folder / "volume")]
    with subprocess.Popen(command) as server:
        assert wait_until(path.exists, 10)
        path.chmod(0o777)
        yield path
        server.terminate()


def volume(socket: Path, attachment: str = "attachment-1", **more: str) -> GuestVolume:
    data = {"socket": str(socket), "export": "one", "auth_password": SECRET, "access_mode": "rw", **more}
    connection = {"driver_volume_type": "nbd", "data": data}
    return GuestVolume(attachment=attachment, volume=f"of-{attachment}", device="/dev/vdb", connection=connection)


def virsh(libvirt: Libvirt, verb: str, *options: str) -> str:
    command = ["virsh", "-q", "-c", libvirt.uri, verb, name_of(A, 1), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def xml_of(libvirt: Libvirt, *options: str) -> str:
    return virsh(libvirt, "dumpxml", *options)


def plugged(libvirt: Libvirt, *options: str) -> dict[str, str]:
    """By attachment, the PCI slot or the name of the disk."""
    disks = attached_in(ElementTree.fromstring(xml_of(libvirt, *options)))
    found = {key: disk.find("./address") for key, disk in disks.items()}
    return {key: "" if one is None else one.get("slot", "") for key, one in found.items()}


async def renewed_by(driver: LibvirtDriver, size: int) -> list[str]:
    """The relays that the driver renews when it is told twice at once that the volume has grown. Nothing grows here."""
    from kilonova.compute.drivers.libvirt import guests  # libvirt-python is there only now

    renewed: list[str] = []

    class Relays:
        async def renew(self, attachment: str) -> None:
            assert not renewed, "the guest goes on while its relay is renewed"
            renewed.append(attachment)
            await asyncio.sleep(0.1)
            renewed_size[0] = size

    renewed_size = [VOLUME_BYTES]
    driver.volumes = Relays()  # type: ignore[assignment]
    try:
        with unittest.mock.patch.object(guests, "show_size"), sizes_seen(renewed_size):
            await asyncio.gather(*(driver.show_size("attachment-1", size) for _ in range(2)))
    finally:
        driver.volumes = None
    return renewed


@contextlib.contextmanager
def sizes_seen(size: list[int]) -> Iterator[None]:
    """Guests see this size."""
    from kilonova.compute.drivers.libvirt import guests

    real = guests.running_with

    def seen(connection: Any, attachment: str) -> dict[str, int]:
        found = real(connection, attachment)
        assert set(found.values()) == {VOLUME_BYTES}
        return dict.fromkeys(found, size[0])

    with unittest.mock.patch.object(guests, "running_with", seen):
        yield


def test_a_volume_is_plugged_into_a_running_guest_once(libvirt: Libvirt, driver: LibvirtDriver, socket: Path) -> None:
    async def life() -> None:
        await driver.ensure_disk(GUEST)
        await driver.ensure_defined(GUEST)
        await driver.ensure_power(A, 1, on=True)
        await driver.ensure_volume(A, 1, volume(socket))
        first = plugged(libvirt)
        assert list(first) == ["attachment-1"] == list(plugged(libvirt, "--inactive"))
        await driver.ensure_volume(A, 1, volume(socket))
        assert plugged(libvirt) == first, "it was taken away and given again"
        assert await renewed_by(driver, VOLUME_BYTES) == [], "told once more, its connection stays"
        assert await renewed_by(driver, VOLUME_BYTES + 512) == ["attachment-1"]
        virsh(libvirt, "suspend")  # as an agent that died before its guest went on
        await driver.show_size("attachment-1", VOLUME_BYTES)
        assert virsh(libvirt, "domstate").strip() == "running"
        assert SECRET not in xml_of(libvirt) + xml_of(libvirt, "--inactive")
        (report,) = await driver.copies()
        assert report.volumes == ("attachment-1",)
        await driver.ensure_power(A, 1, on=False)
        for _ in range(2):
            await driver.ensure_no_volume(A, 1, "attachment-1")
        assert plugged(libvirt, "--inactive") == {}
        (report,) = await driver.copies()
        assert report.volumes == ()
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


def test_a_guest_does_not_start_without_its_volume(libvirt: Libvirt, driver: LibvirtDriver, socket: Path) -> None:
    """Defined with a volume that is not connected to this host, it waits for one that is."""
    missing = GuestVolume(attachment="attachment-1", volume="of-attachment-1")

    async def life() -> None:
        spec = GuestSpec(**{**{name: getattr(GUEST, name) for name in GUEST.__struct_fields__}, "volumes": [missing]})
        await driver.ensure_disk(spec)
        await driver.ensure_defined(spec)
        with pytest.raises(Failed, match=f"volume of-attachment-1 of server {A} is not connected to this host"):
            await driver.ensure_power(A, 1, on=True)
        await driver.ensure_volume(A, 1, volume(socket))
        await driver.ensure_power(A, 1, on=True)
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


def test_a_guest_boots_from_a_volume(libvirt: Libvirt, driver: LibvirtDriver, socket: Path) -> None:
    """It has no root disk; the copy is whole all the same."""
    root = volume(socket)
    spec = GuestSpec(
        **{
            **{name: getattr(GUEST, name) for name in GUEST.__struct_fields__},
            "image": "",
            "volumes": [
                GuestVolume(attachment=root.attachment, volume=root.volume, is_root=True, connection=root.connection)
            ],
        }
    )

    async def life() -> None:
        assert [await driver.ensure_disk(spec) for _ in range(2)] == ["created", "kept"]
        await driver.ensure_defined(spec)
        targets = [one.get("dev") for one in ElementTree.fromstring(xml_of(libvirt)).iterfind("./devices/disk/target")]
        assert targets == ["vda"]
        await driver.ensure_power(A, 1, on=True)
        (report,) = await driver.copies()
        assert (report.power, report.whole) == ("on", True)
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


class Relays:
    """Stand for the relays of a host (drivers/libvirt/volumes.py), and remember who has one."""

    def __init__(self) -> None:
        self.users: set[tuple[str, int]] = set()

    async def open(self, server: str, copy: int, volume: GuestVolume) -> GuestVolume:
        self.users.add((server, copy))
        return volume

    async def release(self, server: str, copy: int, *, keep: Sequence[GuestVolume] = (), only: str = "") -> None:
        if not keep:
            self.users.discard((server, copy))

    async def stop(self) -> None:
        """Nothing runs."""


def test_a_copy_whose_disks_were_sent_lets_go_of_its_volumes(
    libvirt: Libvirt, driver: LibvirtDriver, socket: Path
) -> None:
    """It stays until the move is confirmed, which may be days later."""
    relays, other = Relays(), driver_on(libvirt, "host2")
    driver.volumes = relays  # type: ignore[assignment]
    guest, moved = (msgspec.structs.replace(GUEST, copy=copy, volumes=[volume(socket)]) for copy in (1, 2))

    async def life() -> None:
        await driver.ensure_disk(guest)
        await driver.ensure_defined(guest)
        await driver.send_disk(A, 1, to_host="host1", to_copy=3)
        assert relays.users == {(A, 1)}, "the next copy on the same host uses the same connection"
        await other.expect_disk(moved, "token")
        await driver.send_disk(A, 1, to_host="host2", to_copy=2, route=DiskRoute(url="", token="token"))
        assert relays.users == set()
        await driver.ensure_defined(guest)  # a revert
        assert relays.users == {(A, 1)}
        for copy in (1, 3):
            await driver.ensure_absent(A, copy)
        await other.ensure_absent(A, 2)
        await other.close()
        assert relays.users == set()

    asyncio.run(life())


def test_what_cannot_be_opened_is_refused(driver: LibvirtDriver) -> None:
    other = GuestVolume(attachment="x", volume="v", connection={"driver_volume_type": "iscsi", "data": {}})

    async def life() -> None:
        await driver.ensure_disk(GUEST)
        await driver.ensure_defined(GUEST)
        with pytest.raises(Failed, match="volume v: its connection is of the type 'iscsi'"):
            await driver.ensure_volume(A, 1, other)
        await driver.ensure_absent(A, 1)

    asyncio.run(life())
