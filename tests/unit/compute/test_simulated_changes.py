"""Simulated guests that change by themselves, and the consoles that users open to them."""

from __future__ import annotations

import asyncio

import pytest

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.compute.drivers.simulated.console import SimulatedConsole
from kilonova.compute.drivers.simulated.hardware import Guest
from kilonova.domain.console import PIECE
from kilonova.domain.errors import Refused
from kilonova.sim.loop.event_loop import SimLoop
from kilonova.world import Copy
from tests.unit.compute.simulated_cloud import Cloud, spec


def power(cloud: Cloud) -> dict[tuple[str, int], str]:
    return {(one.server, one.copy): one.power for one in cloud.hardware.survey()}


# -- power -----------------------------------------------------------------------------------------------------------


def test_the_newest_copy_of_the_server_ends_and_starts_by_itself(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    for server, copy in (("s1", 2), ("s1", 1), ("s2", 3)):
        cloud.boot(server=server, copy=copy)
    switch_guest(cloud.hardware, "host1", "s1", False)
    assert power(cloud) == {("s1", 2): "off", ("s1", 1): "on", ("s2", 3): "on"}
    assert cloud.ask(driver.power_change()) == Copy("s1", 2)
    switch_guest(cloud.hardware, "host1", "s1", True)
    assert power(cloud)["s1", 2] == "on"
    assert cloud.ask(driver.power_change()) == Copy("s1", 2)


@pytest.mark.parametrize("on", [True, False])
def test_a_guest_that_is_so_already_is_left_alone_and_reported(cloud: Cloud, on: bool) -> None:
    cloud.boot()
    if not on:
        cloud.ask(cloud.drivers["host1"].ensure_power("s1", 1, on=False))
    before = cloud.ask(cloud.drivers["host1"].console("s1", 1))
    switch_guest(cloud.hardware, "host1", "s1", on)
    assert power(cloud) == {("s1", 1): "on" if on else "off"}
    assert cloud.ask(cloud.drivers["host1"].console("s1", 1)) == before, "it did not boot again"
    assert cloud.ask(cloud.drivers["host1"].power_change()) == Copy("s1", 1)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("there", ["nothing", "another server", "a disk", "a definition", "half a disk"])
def test_what_is_no_complete_guest_does_neither(cloud: Cloud, there: str, on: bool) -> None:
    driver = cloud.drivers["host1"]
    if there == "another server":
        cloud.boot(server="s2")
    if there == "a disk":
        cloud.ask(driver.ensure_disk(spec()))
    if there in ("a definition", "half a disk"):
        cloud.ask(driver.ensure_defined(spec()))
    if there == "half a disk":
        cloud.hardware.fail("host1", "ensure_disk", how="crash")
        cloud.loop.create_task(driver.ensure_disk(spec()))
        cloud.loop.run_for(1)
    with pytest.raises(Refused, match="host1 has no complete guest of server s1"):
        switch_guest(cloud.hardware, "host1", "s1", on)
    listening = cloud.loop.create_task(driver.power_change())
    cloud.loop.run_for(1)
    assert not listening.done()


def test_who_listens_hears_at_once_and_the_next_listener_hears_what_came_meanwhile(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    gone = cloud.loop.create_task(driver.power_change())
    cloud.loop.run_for(1)
    gone.cancel()  # the agent was stopped
    switch_guest(cloud.hardware, "host1", "s1", False)
    cloud.loop.run_for(1)
    assert cloud.ask(driver.power_change()) == Copy("s1", 1)
    listening = cloud.loop.create_task(driver.power_change())
    cloud.loop.run_for(1)
    switch_guest(cloud.hardware, "host1", "s1", True)
    switch_guest(cloud.hardware, "host1", "s1", False)
    cloud.loop.run_for(1)
    assert listening.done()
    assert cloud.ask(driver.power_change()) == Copy("s1", 1), "each change is one"


def test_changes_before_a_power_cut_are_forgotten(cloud: Cloud) -> None:
    """The host registers again, and reports everything."""
    driver = cloud.drivers["host1"]
    cloud.boot()
    switch_guest(cloud.hardware, "host1", "s1", False)
    cloud.hardware.switch_power("host1", on=False)
    cloud.hardware.switch_power("host1", on=True)
    listening = cloud.loop.create_task(driver.power_change())
    cloud.loop.run_for(1)
    assert not listening.done()


# -- consoles --------------------------------------------------------------------------------------------------------


def guest(text: str = "one\ntwo\n") -> Guest:
    return Guest(server="s1", copy=1, power="on", boots=1, console=text)


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()


def test_a_console_shows_what_was_written_and_answers_each_line_with_the_last_one(loop: SimLoop) -> None:
    async def story() -> None:
        console = SimulatedConsole(guest())
        assert await console.read() == b"one\r\ntwo\r\n"
        await console.write(b"l")
        assert await console.read() == b"l"
        for end in (b"\r", b"\n"):
            await console.write(b"s" + end)
            assert await console.read() == b"s" + end + b"\r\ntwo\r\n"

    loop.run_until_complete(story())
    assert loop.time() == 0, "a reader is woken at once"


def test_a_console_waits_for_what_is_typed(loop: SimLoop) -> None:
    async def story() -> None:
        console = SimulatedConsole(guest())
        await console.read()
        await console.write(b"l")
        await console.read()
        reading = asyncio.create_task(console.read())
        await asyncio.sleep(5)
        assert not reading.done()
        await console.write(b"s")
        assert await reading == b"s"

    loop.run_until_complete(story())
    assert loop.time() == 5


@pytest.mark.parametrize("end", ["off", "booted again", "closed"])
def test_a_console_ends_with_its_guest_and_its_user(loop: SimLoop, end: str) -> None:
    async def story() -> None:
        of = guest()
        console = SimulatedConsole(of)
        assert len(await console.read()) > 0
        reading = asyncio.create_task(console.read())
        await asyncio.sleep(1)
        if end == "off":
            of.power = "off"
        elif end == "booted again":
            of.boots += 1
        else:
            await console.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert reading.done(), "at once"
        assert await reading == b""
        with pytest.raises(ConnectionResetError, match="the guest has ended"):
            await console.write(b"x")

    loop.run_until_complete(story())
    assert loop.time() < 1.2


def test_a_long_console_is_read_in_pieces(loop: SimLoop) -> None:
    async def story() -> None:
        console = SimulatedConsole(guest("x" * (PIECE + 1)))
        assert [len(await console.read()) for _ in range(2)] == [PIECE, 1]

    loop.run_until_complete(story())


@pytest.mark.parametrize(("waiting", "taken"), [(PIECE, True), (PIECE + 1, False)])
def test_a_guest_that_cannot_write_drops_its_input(loop: SimLoop, waiting: int, taken: bool) -> None:
    async def story() -> None:
        console = SimulatedConsole(guest("x" * waiting))
        await console.write(b"typed")
        got = await console.read() + await console.read()
        assert got == b"x" * waiting + b"typed" * taken

    loop.run_until_complete(story())
