"""A real guest through the driver's verbs: each is done twice, after a crash in the middle, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import msgspec
import pytest

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
from kilonova.compute.drivers.libvirt.domain import domain_xml, name_of, spec_in
from kilonova.compute.drivers.libvirt.machine import devices_in
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.hardware_request import requested_hardware
from kilonova.domain.numa import CellClaim
from kilonova.domain.pci import VIRTUAL, DeviceClaim
from tests.guests.conftest import IMAGE
from tests.guests.daemon import Libvirt
from tests.guests.processes import process_of
from tests.guests.walk import VERBS
from tests.support.servers import ROOT, wait_until

A, B = "5e7e0000-0000-4000-8000-00000000000a", "5e7e0000-0000-4000-8000-00000000000b"
BOOTED = "KILONOVA-GUEST boot={} root=image:tiny\n"


def guest(server: str = A, copy: int = 1, image: str = IMAGE) -> GuestSpec:
    return GuestSpec(server=server, copy=copy, name="a guest", vcpus=1, memory_mb=32, disk_gb=1, image=image)


async def says(driver: LibvirtDriver, text: str, server: str = A, copy: int = 1) -> None:
    """Until its console says just that: under TCG, beside other tests, a boot may take its time."""
    ends = time.monotonic() + 30
    while (found := await driver.console(server, copy)) != text:
        assert time.monotonic() < ends, f"the console says {found!r}, not {text!r}"
        await asyncio.sleep(0.05)


async def told(driver: LibvirtDriver) -> list[tuple[str, int, str, bool]]:
    return [(report.server, report.copy, report.power, report.whole) for report in await driver.copies()]


@pytest.mark.parametrize(("of_host", "of_image"), [(60.0, 0.0), (0.0, None)], ids=["its image's", "its host's"])
def test_a_guest_that_does_not_listen_is_ended_after(
    driver: LibvirtDriver, of_host: float, of_image: float | None
) -> None:
    driver.shutdown_seconds = of_host

    async def life() -> None:
        spec = msgspec.structs.replace(guest(), shutdown_seconds=of_image)
        await driver.ensure_disk(spec)
        await driver.ensure_defined(spec)
        await driver.ensure_power(A, 1, on=True)
        began = time.monotonic()
        await driver.ensure_power(A, 1, on=False)
        assert time.monotonic() - began < 30
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


def test_a_guest_lives_and_every_verb_is_done_twice(driver: LibvirtDriver) -> None:
    async def life() -> None:
        assert [await driver.ensure_disk(guest()) for _ in range(2)] == ["created", "kept"]
        for _ in range(2):
            await driver.ensure_defined(guest())
        assert await told(driver) == [(A, 1, "off", True)]
        for _ in range(2):
            await driver.ensure_power(A, 1, on=True)
        await says(driver, BOOTED.format(1))
        assert await told(driver) == [(A, 1, "on", True)]
        for _ in range(2):
            await driver.ensure_power(A, 1, on=False)
        assert await told(driver) == [(A, 1, "off", True)]
        await driver.ensure_power(A, 1, on=True)
        await says(driver, BOOTED.format(1) + BOOTED.format(2))  # its disk has counted
        for _ in range(2):
            await driver.ensure_absent(A, 1)
        assert await told(driver) == []
        with pytest.raises(Failed, match=f"host1 has no copy 1 of server {A}"):
            await driver.console(A, 1)

    asyncio.run(life())


def test_copies_are_apart(driver: LibvirtDriver) -> None:
    """Each copy has its own disk; one that was sent, or taken over, has what the first one wrote."""

    async def lives() -> None:
        await boot(driver, guest())
        await says(driver, BOOTED.format(1))
        with pytest.raises(Failed, match="stop it first"):
            await driver.send_disk(A, 1, to_host="host1", to_copy=2)
        await driver.ensure_power(A, 1, on=False)
        for _ in range(2):
            await driver.send_disk(A, 1, to_host="host1", to_copy=2)
        assert await driver.ensure_disk(guest(copy=3), adopt=1) == "adopted"
        await driver.ensure_absent(A, 1)
        for copy in (2, 3):
            await boot(driver, guest(copy=copy))
            await says(driver, BOOTED.format(2), copy=copy)
            await driver.ensure_absent(A, copy)
        assert await told(driver) == []

    asyncio.run(lives())


async def boot(driver: LibvirtDriver, spec: GuestSpec) -> None:
    await driver.ensure_disk(spec)
    await driver.ensure_defined(spec)
    await driver.ensure_power(spec.server, spec.copy, on=True)


def test_what_cannot_be_is_told(driver: LibvirtDriver) -> None:
    async def try_things() -> None:
        with pytest.raises(Failed, match="image none is not in"):
            await driver.ensure_disk(guest(image="none"))
        with pytest.raises(Failed, match=f"copy 1 of server {A} is not defined on host1"):
            await driver.ensure_power(A, 1, on=True)
        await driver.ensure_defined(guest())
        with pytest.raises(Failed, match=f"copy 1 of server {A} has no complete disk on host1"):
            await driver.ensure_power(A, 1, on=True)
        with pytest.raises(Failed, match="host1 cannot send a disk to host9: they share no storage"):
            await driver.ensure_disk(guest())
            await driver.send_disk(A, 1, to_host="host9", to_copy=2)
        await driver.ensure_absent(A, 1)

    asyncio.run(try_things())


@pytest.mark.parametrize("verb", VERBS)
def test_whoever_is_killed_in_the_middle_of_a_verb_is_followed_by_one_who_ends_it(
    libvirt: Libvirt, driver: LibvirtDriver, verb: str
) -> None:
    words = [sys.executable, "-m", "tests.guests.walk", libvirt.uri, libvirt.guests, libvirt.images, B]
    with subprocess.Popen([*map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if line == f"{verb} first\n":
                time.sleep(0.02)  # well within: each verb calls programs that take longer to start
                killed.kill()
    assert killed.returncode == -signal.SIGKILL
    again = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert again.stdout.endswith("done\n"), again.stderr
    assert asyncio.run(told(driver)) == []
    assert list(libvirt.guests.glob(f"*/{B}*")) == []


def test_a_guest_outlives_its_daemon(libvirt: Libvirt, driver: LibvirtDriver) -> None:
    asyncio.run(boot(driver, guest()))
    asyncio.run(says(driver, BOOTED.format(1)))
    libvirt.kill9()
    with pytest.raises(Failed, match="libvirtd at"):
        asyncio.run(driver.ensure_power(A, 1, on=False))
    libvirt.start()
    assert asyncio.run(told(driver)) == [(A, 1, "on", True)]
    assert asyncio.run(driver.console(A, 1)) == BOOTED.format(1), "it was not started again"
    asyncio.run(driver.ensure_absent(A, 1))


def test_a_guest_whose_process_is_killed_is_off_and_starts_again(driver: LibvirtDriver) -> None:
    async def life() -> None:
        await boot(driver, guest())
        await says(driver, BOOTED.format(1))
        os.kill(process_of(A), signal.SIGKILL)
        assert wait_until(lambda: not _is_running(driver), 20)
        await driver.ensure_power(A, 1, on=True)
        await says(driver, BOOTED.format(1) + BOOTED.format(2))
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


def _is_running(driver: LibvirtDriver) -> bool:
    words = ["virsh", "-q", "-c", driver.uri, "domstate", name_of(A, 1)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() == "running"


def test_the_host_tells_what_it_has(driver: LibvirtDriver) -> None:
    inventory = asyncio.run(driver.inventory())
    cells = inventory.hardware.cells
    assert {"VCPU", "MEMORY_MB", "DISK_GB"} == set(inventory.classes)
    assert inventory.classes["VCPU"][0] == sum(len(cell.shared) for cell in cells) == os.cpu_count()
    assert all(cell.pages and cell.pages[0].size_kb == 4 for cell in cells)


def test_what_the_host_gave_is_in_the_definition(driver: LibvirtDriver) -> None:
    """Pinned to the machine's first CPU, and found again by who asks what is here."""
    wish = requested_hardware(1, 32, {"hw:cpu_policy": "dedicated", "hw:cpu_sockets": "1"}, {})
    claim = HostClaim((CellClaim(cell=0, pinning=((0, 0),), memory_mb=32, page_kb=4),))
    spec = _with(guest(), wish, claim)

    async def life() -> None:
        await driver.ensure_disk(spec)
        await driver.ensure_defined(spec)
        assert [report.claim for report in await driver.copies()] == [claim]
        await driver.ensure_power(A, 1, on=True)
        await says(driver, BOOTED.format(1))
        cpus = _cpus_of(process_of(A))
        assert "0" in cpus, f"no thread of the guest is on CPU 0 alone: {cpus}"
        await driver.ensure_absent(A, 1)

    asyncio.run(life())


def _cpus_of(process: int) -> set[str]:
    """Which CPUs each of its threads may run on."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {(task / "status").read_text().partition("Cpus_allowed_list:")[2].split()[0] for task in tasks}


def _with(spec: GuestSpec, wish: HardwareRequest | None, claim: HostClaim) -> GuestSpec:
    return GuestSpec(
        server=spec.server,
        copy=spec.copy,
        name=spec.name,
        vcpus=spec.vcpus,
        memory_mb=spec.memory_mb,
        disk_gb=spec.disk_gb,
        image=spec.image,
        hardware=wish,
        claim=claim,
    )


def test_devices_and_pages_are_told_to_libvirt() -> None:
    wish = requested_hardware(2, 64, {"hw:cpu_policy": "dedicated", "hw:mem_page_size": "large"}, {})
    cell = CellClaim(cell=1, pinning=((0, 6), (1, 7)), emulator=(5,), memory_mb=64, page_kb=2048)
    spec = _with(guest(), wish, HostClaim((cell,), (DeviceClaim("nic", "0000:81:00.1"),)))
    xml = domain_xml(spec, Path("/there"), "qemu", "me")
    assert spec_in(ElementTree.fromstring(xml)) == spec
    for part in (
        '<vcpupin vcpu="0" cpuset="6" /><vcpupin vcpu="1" cpuset="7" /><emulatorpin cpuset="5" />',
        '<memnode cellid="0" mode="strict" nodeset="1" />',
        '<cell id="0" cpus="0-1" memory="64" unit="MiB" />',
        '<page size="2048" unit="KiB" nodeset="0" />',
        '<address domain="0x0000" bus="0x81" slot="0x00" function="0x1" />',
    ):
        assert part in xml


NODE_DEVICE = """<device><name>pci_0000_81_00_1</name><capability type='pci'>
  <domain>0</domain><bus>129</bus><slot>0</slot><function>1</function>
  <product id='0x154c'>VF</product><vendor id='0x8086'>Intel</vendor>
  <capability type='phys_function'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability>
  <numa node='1'/></capability></device>"""


def test_libvirts_node_devices_are_understood() -> None:
    (device,) = devices_in([NODE_DEVICE, "<device><capability type='net'/></device>"])
    assert (device.address, device.parent, device.type) == ("0000:81:00.1", "0000:81:00.0", VIRTUAL)
    assert (device.vendor_id, device.product_id, device.cell) == ("8086", "154c", 1)


def test_a_snapshot_of_a_running_and_of_a_stopped_guest(libvirt: Libvirt, driver: LibvirtDriver) -> None:
    """A guest made from it counts on from the boot that was counted when it was taken."""

    async def read(name: str) -> bytes:
        return b"".join([piece async for piece in driver.read_snapshot(A, 1, name)])

    async def lives() -> None:
        await boot(driver, guest())
        await says(driver, BOOTED.format(1))
        taken = [await driver.ensure_snapshot(A, 1, "running") for _ in range(2)]
        assert taken[0] == taken[1] and taken[0].disk_format == "qcow2"
        running = await read("running")
        assert len(running) == taken[0].size
        await driver.ensure_power(A, 1, on=False)
        await driver.ensure_power(A, 1, on=True)
        await says(driver, BOOTED.format(1) + BOOTED.format(2))
        await driver.ensure_power(A, 1, on=False)
        await driver.ensure_snapshot(A, 1, "stopped")
        stopped = await read("stopped")
        with pytest.raises(Failed, match="snapshot running of server"):
            await read("running")  # a copy keeps one at a time
        for _ in range(2):
            await driver.ensure_no_snapshot(A, 1, "stopped")
        for name, content, boots in (("of-running", running, 2), ("of-stopped", stopped, 3)):
            (libvirt.images / name).write_bytes(content)
            made = msgspec.structs.replace(guest(B, boots, name), image_format="qcow2")
            await boot(driver, made)
            await says(driver, BOOTED.format(boots), B, boots)
            await driver.ensure_absent(B, boots)
        await driver.ensure_absent(A, 1)
        assert await told(driver) == []

    asyncio.run(lives())
