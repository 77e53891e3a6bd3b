"""50 real guests on one host, all running: what a report of them costs, how soon the end of one is noticed, and what a
libvirtd that hangs holds up. The figures of decision 009.

Usage: python -m bench.guests [GUESTS]

Guests are boot sectors that halt. CPU is that of this process, which is the agent's driver, and its children; libvirtd
is one of our own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING

from bench.measure import cpu_of
from bench.report import Report, median, rounds
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from tests.guests.conftest import IMAGE, driver_on
from tests.guests.daemon import Libvirt
from tests.guests.processes import process_of
from tests.guests.tiny_guest import image
from tests.support.servers import NotAvailable

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver

GUESTS = 50
AT_ONCE = 4  # as many as libvirt is called at a time
ROUNDS, REPORTS = 5, 20
KILLED = 5
CALLS = 6  # at the same time, while libvirtd hangs
TICK = 0.01  # seconds


def server_id(number: int) -> str:
    return f"5e7e0000-0000-4000-8000-{number:012d}"


def cpu_ms() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return 1000 * sum(one.ru_utime + one.ru_stime for one in used)


async def start_guests(driver: LibvirtDriver, count: int) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def start(number: int) -> None:
        server = server_id(number)
        guest = GuestSpec(server=server, copy=1, name="g", vcpus=1, memory_mb=32, disk_gb=1, image=IMAGE)
        async with free:
            await driver.ensure_disk(guest)
            await driver.ensure_defined(guest)
            await driver.ensure_power(server, 1, on=True)

    await asyncio.gather(*(start(number) for number in range(count)))


async def running(driver: LibvirtDriver) -> int:
    return sum(one.power == "on" for one in await driver.copies())


async def measure_reports(libvirt: Libvirt, count: int, report: Report) -> None:
    """By a driver that has just been started, as that of an agent."""
    driver = driver_on(libvirt)
    before = cpu_ms()
    report.exactly("guests that run", await running(driver), count)
    first, found = cpu_ms() - before, list[float]()
    of_libvirtd = cpu_of(libvirt.pid)
    for _ in range(ROUNDS):
        before = cpu_ms()
        for _ in range(REPORTS):
            await driver.copies()
        found.append((cpu_ms() - before) / REPORTS)
    of_libvirtd = 1000 * (cpu_of(libvirt.pid) - of_libvirtd) / (ROUNDS * REPORTS)
    note = f"{rounds(found, 1)}; libvirtd itself {of_libvirtd:.1f} ms"
    report.at_most("CPU of a report of all guests", median(found), "ms", 20, note)
    report.add("CPU of the first report", first, "ms", "it reads all definitions")
    await driver.close()


async def measure_notice(libvirt: Libvirt, driver: LibvirtDriver, report: Report) -> None:
    waiting = asyncio.create_task(driver.power_change())
    await asyncio.sleep(2.0)  # until it listens
    found = list[float]()
    for number in range(KILLED + 1):
        server, began = server_id(number), time.monotonic()
        if number < KILLED:
            os.kill(process_of(server), signal.SIGKILL)
        else:
            await asyncio.to_thread(libvirt.virsh, "destroy", f"kilonova-{server}-1")
        while (await waiting).server != server or await driver.is_on(server, 1):
            waiting = asyncio.create_task(driver.power_change())
        waiting = asyncio.create_task(driver.power_change())
        found.append(time.monotonic() - began)
    waiting.cancel()
    *killed, stopped = found
    report.at_most("guest killed: noticed after", max(killed), "s", 2, rounds(killed))
    report.at_most("guest stopped by virsh: noticed after", stopped, "s", 2, "virsh itself included")


async def measure_hang(libvirt: Libvirt, driver: LibvirtDriver, report: Report) -> None:
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK)
            gaps.append(time.monotonic() - before - TICK)

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
        failed = await asyncio.gather(*(fail() for _ in range(CALLS)))
    finally:
        libvirt.thaw()
    ticking.cancel()
    report.at_most("libvirtd hangs: longest pause of the agent", 1000 * max(gaps), "ms", 1000)
    report.at_most(f"libvirtd hangs: last of {CALLS} calls failed after", max(failed), "s", 30, rounds(failed, 1))
    report.add("libvirtd goes on: next report after", await answered(driver), "s")
    libvirt.kill9()
    libvirt.start()
    report.add("libvirtd killed and started: next report after", await answered(driver), "s")


async def answered(driver: LibvirtDriver) -> float:
    began = time.monotonic()
    while True:
        try:
            await driver.copies()
        except Failed:
            await asyncio.sleep(0.05)
            continue
        return time.monotonic() - began


async def measure(libvirt: Libvirt, count: int, report: Report) -> None:
    driver = driver_on(libvirt)
    await start_guests(driver, count)
    await measure_reports(libvirt, count, report)
    await measure_notice(libvirt, driver, report)
    await measure_hang(libvirt, driver, report)
    for number in range(count):
        await driver.ensure_absent(server_id(number), 1)
    await driver.close()


def main() -> int:
    report = Report("guests")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else GUESTS
    try:
        with Libvirt() as daemon:
            (daemon.images / IMAGE).write_bytes(image(f"image:{IMAGE}"))
            asyncio.run(measure(daemon, count, report))
    except NotAvailable as missing:
        report.not_run(str(missing))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
