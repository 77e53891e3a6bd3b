"""`python -m tests.guests.measure [GUESTS] [RUNNING]`: the figures of decision 009, printed.

Guests are boot sectors that halt. CPU is that of this process and its children; libvirtd is one of our own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time

from kilonova.compute.drivers.libvirt import guests
from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from tests.guests.conftest import IMAGE, driver_on
from tests.guests.daemon import Libvirt
from tests.guests.processes import process_of
from tests.guests.tiny_guest import image

REPORTS = 20
TICK = 0.01  # seconds


def server_id(number: int) -> str:
    return f"5e7e0000-0000-4000-8000-{number:012d}"


def cpu_ms() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return 1000 * sum(one.ru_utime + one.ru_stime for one in used)


async def make(driver: LibvirtDriver, number: int, running: bool) -> None:
    server = server_id(number)
    guest = GuestSpec(server=server, copy=1, name="g", vcpus=1, memory_mb=32, disk_gb=1, image=IMAGE)
    await driver.ensure_disk(guest)
    await driver.ensure_defined(guest)
    await driver.ensure_power(server, 1, on=running)


async def measure_reports(driver: LibvirtDriver) -> None:
    for what, times in (("first report, with definitions", 1), ("report", REPORTS)):
        before = cpu_ms()
        for _ in range(times):
            found = await driver.copies()
        print(f"{what}: {(cpu_ms() - before) / times:.1f} ms CPU, {len(found)} guests")
    before = cpu_ms()
    for _ in range(REPORTS):
        await driver.connection.call(guests.powers)
    print(f"power states alone: {(cpu_ms() - before) / REPORTS:.1f} ms CPU")


async def measure_notice(libvirt: Libvirt, driver: LibvirtDriver) -> None:
    waiting = asyncio.create_task(driver.power_change())
    await asyncio.sleep(2.0)  # until it listens
    for number in range(4):
        began = time.monotonic()
        if number < 3:
            os.kill(process_of(server_id(number)), signal.SIGKILL)
        else:
            libvirt.virsh("destroy", f"kilonova-{server_id(number)}-1")
        while (await waiting).server != server_id(number) or await driver.is_on(server_id(number), 1):
            waiting = asyncio.create_task(driver.power_change())
        waiting = asyncio.create_task(driver.power_change())
        how = "killed" if number < 3 else "destroyed by virsh"
        print(f"{how}: noticed after {time.monotonic() - began:.2f} s")
    waiting.cancel()


async def measure_hang(libvirt: Libvirt, driver: LibvirtDriver) -> None:
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK)
            gaps.append(time.monotonic() - before)

    async def fail() -> float:
        began = time.monotonic()
        try:
            await driver.copies()
        except Failed:
            return time.monotonic() - began
        raise AssertionError("libvirtd answered although it was stopped")

    libvirt.freeze()
    ticking = asyncio.create_task(tick())
    try:
        failed = await asyncio.gather(*(fail() for _ in range(6)))
    finally:
        libvirt.thaw()
    ticking.cancel()
    print(f"libvirtd stopped: 6 calls failed after {min(failed):.1f} to {max(failed):.1f} s")
    print(f"longest pause of the loop meanwhile: {1000 * (max(gaps) - TICK):.0f} ms")
    print(f"libvirtd goes on: next report after {await answered(driver):.2f} s")
    libvirt.kill9()
    libvirt.start()
    print(f"libvirtd killed and started: next report after {await answered(driver):.2f} s")


async def answered(driver: LibvirtDriver) -> float:
    began = time.monotonic()
    while True:
        try:
            await driver.copies()
        except Failed:
            await asyncio.sleep(0.05)
            continue
        return time.monotonic() - began


async def main(libvirt: Libvirt, count: int, running: int) -> None:
    driver = driver_on(libvirt)
    for number in range(count):
        await make(driver, number, number < running)
    await measure_reports(driver)
    await measure_notice(libvirt, driver)
    await measure_hang(libvirt, driver)
    for number in range(count):
        await driver.ensure_absent(server_id(number), 1)
    await driver.close()


if __name__ == "__main__":
    with Libvirt() as daemon:
        (daemon.images / IMAGE).write_bytes(image(f"image:{IMAGE}"))
        numbers = [int(word) for word in sys.argv[1:]]
        asyncio.run(main(daemon, *(numbers or [50, 10])))
