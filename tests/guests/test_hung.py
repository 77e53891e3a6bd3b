"""A libvirtd that hangs or dies: no call waits for ever, the agent's loop goes on, and a guest that ends is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from tests.guests.conftest import IMAGE
from tests.guests.daemon import Libvirt
from tests.guests.processes import process_of
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver

A = "5e7e0000-0000-4000-8000-0000000000bb"
GUEST = GuestSpec(server=A, copy=1, name="hung", vcpus=1, memory_mb=32, disk_gb=1, image=IMAGE)
GIVEN_UP = 15.0  # seconds: keepalive needs 8
NOTICED = 2.0
COMPARED = 1.0  # seconds between two comparisons
TICK = 0.02


def test_a_hung_libvirtd_holds_nobody(libvirt: Libvirt, driver: LibvirtDriver) -> None:
    async def life() -> None:
        await driver.copies()
        gaps: list[float] = []
        ticking = asyncio.create_task(tick(gaps))
        libvirt.freeze()
        try:
            began = time.monotonic()
            failed = await asyncio.gather(*(driver.copies() for _ in range(8)), return_exceptions=True)
            assert all(isinstance(one, Failed) for one in failed), failed
            assert time.monotonic() - began < GIVEN_UP
            assert calling() <= 4
        finally:
            libvirt.thaw()
        ticking.cancel()
        assert max(gaps) < 1.0, "the loop stood still"
        assert list(await until_answered(driver)) == []
        await driver.close()

    asyncio.run(life())
    assert wait_until(lambda: calling() == 0, 5), "threads are left"


def calling() -> int:
    return len([one for one in threading.enumerate() if one.name.startswith("libvirt-call")])


def test_a_guest_that_ends_is_noticed_also_while_libvirtd_was_away(
    libvirt: Libvirt, driver: LibvirtDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilonova.compute.drivers.libvirt.watch.COMPARE_SECONDS", COMPARED)

    async def life() -> None:
        await driver.ensure_disk(GUEST)
        await driver.ensure_defined(GUEST)
        changes: asyncio.Queue[float] = asyncio.Queue()
        watching = asyncio.create_task(note(driver, changes))
        await driver.ensure_power(A, 1, on=True)
        await asyncio.wait_for(changes.get(), 20)
        await asyncio.sleep(0.5)
        while not changes.empty():
            changes.get_nowait()

        began = time.monotonic()
        os.kill(process_of(A), signal.SIGKILL)
        assert await asyncio.wait_for(changes.get(), 20) - began < NOTICED
        assert not await driver.is_on(A, 1)

        await driver.ensure_power(A, 1, on=True)
        await asyncio.wait_for(changes.get(), 20)
        await asyncio.sleep(2 * COMPARED)  # a comparison has seen it run
        while not changes.empty():
            changes.get_nowait()
        libvirt.kill9()
        os.kill(process_of(A), signal.SIGKILL)
        libvirt.start()
        await asyncio.wait_for(changes.get(), 20)
        assert not await driver.is_on(A, 1)
        watching.cancel()
        await driver.ensure_absent(A, 1)
        await driver.close()  # in the loop that it watched in

    asyncio.run(life())


async def note(driver: LibvirtDriver, changes: asyncio.Queue[float]) -> None:
    while True:
        if (await driver.power_change()).server == A:
            changes.put_nowait(time.monotonic())


async def tick(gaps: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(TICK)
        gaps.append(time.monotonic() - before)


async def until_answered(driver: LibvirtDriver) -> list[object]:
    for _ in range(100):
        try:
            return list(await driver.copies())
        except Failed:
            await asyncio.sleep(0.1)
    pytest.fail("libvirtd does not answer again")
