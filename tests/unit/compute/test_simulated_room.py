"""The machine room of simulated hosts as somebody touches it from outside: by hand or over the bus."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.bus import machine_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.drivers.simulated import machine
from kilonova.compute.drivers.simulated.driver import SimulatedFence
from kilonova.compute.drivers.simulated.link import SimulatedLink
from kilonova.compute.drivers.simulated.machine import Machine, Peers
from kilonova.domain.errors import Failed, NoAnswer, Refused
from kilonova.domain.machine import (
    FailOrder,
    GuestPower,
    LocalDisk,
    MachineAnswer,
    MachineOrder,
    PlantOrder,
    SentDisk,
    WriteOrder,
)
from kilonova.domain.volume import Content
from kilonova.services.volume.content import SUBJECT
from kilonova.world import GuestVolume
from tests.unit.compute.simulated_cloud import Cloud, spec

CONNECTED = {"data": {"auth_password": "secret"}}
ROOT = GuestVolume(attachment="a0", volume="v0", device="/dev/vda", is_root=True, connection=CONNECTED)
DATA = GuestVolume(attachment="a1", volume="v1", device="/dev/vdb", connection=CONNECTED)


# -- over the bus ----------------------------------------------------------------------------------------------------


class Room:
    """The machine host1 on a bus, beside a volume service that keeps what is written to it."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.hub = cloud, MemoryHub()
        self.written: list[Content] = []
        cloud.ask(Machine(cloud.hardware, "host1").serve(MemoryBus(self.hub, "machine")))
        cloud.ask(MemoryBus(self.hub, "api").serve(SUBJECT, self._on_volume))

    async def _on_volume(self, body: bytes) -> bytes:
        self.written.append(msgspec.json.decode(body, type=Content))
        return b'{"marker": "all of it"}'

    def order(self, **order: Any) -> MachineAnswer:
        bus = MemoryBus(self.hub, "somebody")
        body = self.cloud.ask(bus.call(machine_subject("host1"), msgspec.json.encode(MachineOrder(**order))))
        return msgspec.json.decode(body, type=MachineAnswer)


@pytest.fixture
def room(cloud: Cloud) -> Room:
    return Room(cloud)


def test_a_failure_is_ordered(room: Room) -> None:
    assert room.order(fail=FailOrder("copies", 2)) == MachineAnswer()
    for _ in range(2):
        with pytest.raises(Failed, match="injected failure"):
            room.cloud.ask(room.cloud.drivers["host1"].copies())
    assert room.cloud.ask(room.cloud.drivers["host1"].copies()) == []
    assert room.order(fail=FailOrder("explode"), power=False).code == "unknown_verb"
    assert room.cloud.hardware.is_running("host1"), "what was refused did nothing"


def test_a_guest_is_planted_once_and_can_be_lost(room: Room) -> None:
    for server, copy in (("s1", 1), ("s1", 2), ("s2", 1)):
        assert room.order(plant=PlantOrder(server, copy, "on" if copy == 1 else "off")).code == ""
    again = room.order(plant=PlantOrder("s1", 2))
    assert (again.code, again.refused) == ("exists", "host1 has a copy 2 of server s1 already")
    assert [(one.server, one.copy, one.power) for one in room.cloud.hardware.survey()] == [
        ("s1", 1, "on"),
        ("s1", 2, "off"),
        ("s2", 1, "on"),
    ]
    room.order(power=True)
    assert len(room.cloud.hardware.survey()) == 3
    room.order(lose="s1")
    assert [one.server for one in room.cloud.hardware.survey()] == ["s2"]
    assert [one.server for one in room.cloud.hardware.storage.all()] == ["s2"]
    assert room.order(plant=PlantOrder("s1", 1)).code == "", "nothing of it is left"


def test_the_console_of_a_lost_guest_ends(room: Room) -> None:
    room.order(plant=PlantOrder("s1"))
    console = room.cloud.ask(room.cloud.drivers["host1"].open_console("s1", 1, "serial"))
    assert room.cloud.ask(console.read()) != b""
    room.order(lose="s1")
    assert room.cloud.ask(console.read()) == b""


def test_a_guest_is_switched(room: Room) -> None:
    room.order(plant=PlantOrder("s1"))
    for power in ("off", "on"):
        room.order(guest=GuestPower("s1", power))  # type: ignore[arg-type]
        assert [one.power for one in room.cloud.hardware.survey()] == [power]
    assert room.order(guest=GuestPower("s2")).code == "not_found"


def test_a_console_is_that_of_the_copy_that_runs_else_of_the_newest(room: Room) -> None:
    hardware = room.cloud.hardware
    for server, copy, power in (("s1", 2, "off"), ("s1", 5, "on"), ("s1", 7, "off"), ("s2", 1, "on")):
        hardware.plant("host1", server, copy, power, name=f"copy{copy}")
    hardware.host("host1").guests["s1", 7].console = "of copy 7"
    assert "name=copy5" in room.order(console="s1").console
    room.order(guest=GuestPower("s1"))
    hardware.stop(hardware.host("host1"), hardware.host("host1").guests["s1", 5])
    assert room.order(console="s1").console == "of copy 7"
    assert room.order(console="s3").refused == "host1 has no guest of server s3"
    assert room.order().console == ""


def booted(cloud: Cloud, *volumes: GuestVolume, server: str = "s1", **changes: Any) -> None:
    driver, guest = cloud.drivers["host1"], spec(server, volumes=list(volumes), **changes)
    cloud.ask(driver.ensure_disk(guest))
    cloud.ask(driver.ensure_defined(guest))
    cloud.ask(driver.ensure_power(server, 1, on=True))


def test_a_guest_writes_to_its_disks_and_volumes(room: Room) -> None:
    booted(room.cloud, DATA, ephemeral_gb=[1], swap_mb=64)
    booted(room.cloud, ROOT, server="s2")
    for disk in ("root", "ephemeral0", "swap", "v1"):
        assert room.order(write=WriteOrder("s1", f"in-{disk}", disk)).code == "", disk
    disk = room.cloud.hardware.disk(room.cloud.hardware.host("host1"), "s1", 1)
    assert disk is not None
    assert disk.marker == "image:cirros+in-root"
    assert [one.marker for one in disk.others.values()] == ["blank+in-ephemeral0", "blank+in-swap"]
    assert room.written == [Content(attachment="a1", secret="secret", text="in-v1")]
    room.order(write=WriteOrder("s2", "in-root"))
    room.order(write=WriteOrder("s2", "by-id", "v0"))
    assert [(one.attachment, one.text) for one in room.written[1:]] == [("a0", "in-root"), ("a0", "by-id")]
    assert room.cloud.hardware.read("s2") == "image:cirros", "its root disk is the volume"
    booted(room.cloud, DATA, ROOT, server="s3")
    room.order(write=WriteOrder("s3", "note"))
    assert room.written[-1].attachment == "a0", "in whatever order its volumes are"
    room.cloud.ask(room.cloud.drivers["host1"].ensure_disk(spec(copy=2)))  # of a move that has begun
    assert room.order(write=WriteOrder("s1", "more")).code == ""


@pytest.mark.parametrize(
    ("server", "disk", "code"),
    [
        ("s1", "v9", "no_disk"),
        ("s1", "v0", "no_disk"),
        ("s2", "v1", "no_disk"),
        ("s3", "v1", "no_disk"),
        ("s1", "ephemeral7", "no_disk"),
        ("s1", "ephemeral", "no_disk"),
    ],
)
def test_a_guest_writes_to_nothing_that_it_does_not_have(room: Room, server: str, disk: str, code: str) -> None:
    booted(room.cloud, DATA)
    booted(room.cloud, ROOT, server="s2")
    booted(room.cloud, DATA, server="s3")
    room.cloud.ask(room.cloud.drivers["host1"].ensure_power("s3", 1, on=False))
    assert room.order(write=WriteOrder(server, "note", disk)).code == code
    assert room.written == []


@pytest.mark.parametrize("disk", ["root", "v1"])
def test_a_guest_writes_one_word(room: Room, disk: str) -> None:
    booted(room.cloud, DATA)
    assert room.order(write=WriteOrder("s1", "two words", disk)).code == "bad_text"
    assert room.written == []


def test_a_received_disk_keeps_what_came_with_it(room: Room) -> None:
    room.cloud.ask(room.cloud.drivers["host1"].ensure_defined(spec(copy=2)))
    sent = SentDisk("s1", 2, ["image:i", "note"], 7, {"ephemeral0": LocalDisk(3, ["blank", "x"])})
    for _ in range(2):
        assert room.order(receive=sent).code == ""
    disk = room.cloud.hardware.disk(room.cloud.hardware.host("host1"), "s1", 2)
    assert disk is not None and disk.described() == ["root=7G", "ephemeral0=3G:blank+x"]
    room.cloud.hardware.switch_link("host1", up=False)
    assert room.order(receive=sent).code == "unreachable"


class Away:
    """A bus on which nobody answers."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.times: list[float] = []

    async def call(self, subject: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        self.times.append(self._cloud.loop.time())
        raise NoAnswer("nobody")


def test_a_machine_that_does_not_answer_is_asked_until_patience_ends(cloud: Cloud) -> None:
    bus = Away(cloud)
    with pytest.raises(Failed, match="far does not take the disk: nobody") as why:
        cloud.ask(Peers(bus).send("far", SentDisk("s1", 1, [])))  # type: ignore[arg-type]
    assert (why.value.code, why.value.final) == ("unreachable", False)
    assert machine.PATIENCE_SECONDS <= cloud.loop.time() <= machine.PATIENCE_SECONDS + 1
    assert len(bus.times) < 100


# -- the link --------------------------------------------------------------------------------------------------------


class Bus:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.connected = True

    async def start(self) -> None:
        self.done.append("start")

    async def close(self) -> None:
        self.done.append("close")

    async def stop_serving(self) -> None:
        self.done.append("stop_serving")

    async def cast(self, subject: str, body: bytes) -> None:
        self.done.append(f"cast {subject}")

    def is_connected(self) -> bool:
        return self.connected


def test_a_link_is_the_bus_of_its_agent_until_it_is_closed(cloud: Cloud) -> None:
    bus = Bus()
    link = SimulatedLink(bus, cloud.hardware, "host1")  # type: ignore[arg-type]
    for work in (link.start(), link.cast("a", b""), link.stop_serving()):
        cloud.ask(work)
    assert link.is_connected() and link.is_open
    bus.connected = False
    assert link.is_open and not link.is_connected()
    cloud.ask(link.close())
    assert not link.is_open
    cloud.ask(link.cast("b", b""))
    assert bus.done == ["start", "cast a", "stop_serving", "close"]


# -- guests ----------------------------------------------------------------------------------------------------------


def test_a_guest_is_found_by_its_server(cloud: Cloud) -> None:
    for host, server in (("host1", "s1"), ("host2", "s2"), ("host3", "s2")):
        cloud.hardware.plant(host, server, 1)
    cloud.hardware.plant("host1", "s2", 2, "off")
    assert cloud.hardware.running("s1") == [("host1", 1)]
    assert cloud.hardware.running("s2") == [("host2", 1), ("host3", 1)]
    assert [(one.host, one.copy) for one in cloud.hardware.survey("s2")] == [("host1", 2), ("host2", 1), ("host3", 1)]
    assert len(cloud.hardware.survey()) == 4


def test_half_a_guest_is_reported_as_it_is(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_defined(spec(copy=1)))
    cloud.ask(driver.ensure_disk(spec(copy=2)))
    cloud.hardware.fail("host1", "ensure_disk", how="crash")
    cloud.loop.create_task(driver.ensure_disk(spec(copy=3)))
    cloud.loop.run_for(1)
    assert [(one.copy, one.power, one.whole, one.marker, one.defined) for one in cloud.hardware.survey()] == [
        (1, "off", False, "", True),
        (2, "absent", True, "image:cirros", False),
        (3, "absent", False, "", False),
    ]
    cloud.hardware.switch_power("host1", on=False)
    cloud.hardware.lose("host1", "s1")
    assert cloud.hardware.survey() == []


def test_a_planted_guest_is_there_after_a_restart(tmp_path: Path) -> None:
    for power in ("on", "off"):
        first = Cloud(1, persist=tmp_path / power)
        first.hardware.plant("host1", "s1", 1, power)
        first.hardware.plant("host1", "s2", 1, power)
        first.hardware.lose("host1", "s2")
        seen = first.hardware.survey()
        first.close()
        again = Cloud(1, persist=tmp_path / power)
        assert again.hardware.survey() == seen and seen[0].defined and seen[0].power == power
        again.close()


def test_a_stopped_guest_is_stopped_once(cloud: Cloud) -> None:
    """Its disk may be another copy's by then."""
    shared = Cloud(2, shared_storage="nfs1")
    shared.boot("host1")
    shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=False))
    shared.ask(shared.drivers["host2"].ensure_disk(spec(copy=2), adopt=1))
    shared.ask(shared.drivers["host2"].ensure_defined(spec(copy=2)))
    shared.ask(shared.drivers["host2"].ensure_power("s1", 2, on=True))
    shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=False))
    with pytest.raises(Failed, match="disk is in use: copy 2 of server s1 runs on host2"):
        shared.ask(shared.drivers["host1"].ensure_power("s1", 1, on=True))
    shared.close()


def test_a_host_remembers_this_and_nothing_else(cloud: Cloud) -> None:
    cloud.hardware.note("host1", "old", 1)
    cloud.hardware.note("host2", "other", 1)
    cloud.hardware.remember("host1", {"key": "k", "s1": [1, 2]})
    assert cloud.hardware.recall("host1") == {"key": "k", "s1": [1, 2]}
    assert cloud.hardware.recall("host2") == {"other": 1}


def test_a_grown_root_disk_is_shown(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec()))
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=1)))
    cloud.ask(driver.ensure_defined(spec()))
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert "KILONOVA-DISKS" not in cloud.ask(driver.console("s1", 1)), "it is as its image was"
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=3)))
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    assert "KILONOVA-DISKS root=3G\n" in cloud.ask(driver.console("s1", 1))


def test_a_fence_may_hang_and_may_lie(cloud: Cloud) -> None:
    fence = SimulatedFence(cloud.hardware)
    fence.lies = True
    assert cloud.ask(fence.fence("host1")) == "host1 was powered off by the simulated fence"
    assert cloud.hardware.is_running("host1")
    fence.lies, fence.hangs = False, True
    fencing = cloud.loop.create_task(fence.fence("host1"))
    cloud.loop.run_for(3600)
    assert not fencing.done() and cloud.hardware.is_running("host1")
    assert fence.fenced == ["host1", "host1"]


@pytest.mark.parametrize("verb", ["copies", "*"])
def test_a_failure_is_of_one_verb_of_one_host_until_it_is_taken_back(cloud: Cloud, verb: str) -> None:
    for host in ("host1", "host2"):
        cloud.hardware.fail(host, verb)
    cloud.hardware.heal("host1")
    cloud.ask(cloud.drivers["host1"].copies())
    if verb == "copies":
        cloud.ask(cloud.drivers["host2"].inventory())
    with pytest.raises(Failed):
        cloud.ask(cloud.drivers["host2"].copies())


def test_a_call_of_a_dead_agent_does_not_end_even_when_it_is_forgotten(cloud: Cloud) -> None:
    """Its last lines would run, and change what the next agent finds."""
    ran: list[bool] = []

    async def call() -> None:
        try:
            await cloud.hardware.never()
        finally:
            ran.append(True)

    cloud.loop.create_task(call())
    cloud.loop.run_for(1)
    gc.collect()
    assert ran == []


def test_half_a_copy_is_there_after_a_restart(tmp_path: Path) -> None:
    """It is reported, so that somebody removes it."""
    first = Cloud(1, persist=tmp_path / "hardware")
    first.hardware.fail("host1", "ensure_disk", how="crash")
    first.loop.create_task(first.drivers["host1"].ensure_disk(spec()))
    first.loop.run_for(1)
    first.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    assert [(one.server, one.copy, one.whole) for one in again.hardware.survey()] == [("s1", 1, False)]
    again.close()


def test_a_guest_boots_where_nobody_reads_volumes(cloud: Cloud) -> None:
    booted(cloud, ROOT, DATA)
    assert "root=image:cirros volumes=\n" in cloud.ask(cloud.drivers["host1"].console("s1", 1))


def test_a_lost_bus_is_noticed_by_who_waits_no_longer_than_it_says(cloud: Cloud) -> None:
    link = SimulatedLink(Bus(), cloud.hardware, "host1")  # type: ignore[arg-type]
    cloud.hardware.switch_link("host1", up=False)

    async def call() -> None:
        async with asyncio.timeout(10):
            await link.call("x", b"", timeout=3)

    with pytest.raises(NoAnswer, match="no answer on x within 3 s; host1 is cut off"):
        cloud.ask(call())
    assert cloud.loop.time() == 3
    with pytest.raises(Refused):
        SimulatedLink(Bus(), cloud.hardware, "mars").is_connected()  # type: ignore[arg-type]
