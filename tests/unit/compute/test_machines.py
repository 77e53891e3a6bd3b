"""Machines reached over the bus: disks sent between processes, switches, and the link that an agent speaks through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from kilonova.bus import machine_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.drivers.simulated import machine
from kilonova.compute.drivers.simulated.driver import SimulatedDriver
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.compute.drivers.simulated.link import SimulatedLink
from kilonova.compute.drivers.simulated.machine import Machine, Peers
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.machine import MachineAnswer, MachineOrder, SentDisk, WriteOrder
from tests.unit.compute.simulated_cloud import spec


class TwoRooms:
    """host1 and host2 in two programs that share nothing but the bus."""

    def __init__(self, persist: Path | None = None) -> None:
        self.hub = MemoryHub()
        self.rooms: dict[str, Hardware] = {}
        self.drivers: dict[str, SimulatedDriver] = {}
        for host in ("host1", "host2"):
            room = self.rooms[host] = Hardware(persist=persist and persist / host)
            room.add_host(host)
            self.drivers[host] = SimulatedDriver(
                room, host, Peers(SimulatedLink(MemoryBus(self.hub, host), room, host))
            )

    async def serve(self) -> None:
        for host, room in self.rooms.items():
            await Machine(room, host).serve(MemoryBus(self.hub, f"machine {host}"))

    async def prepared(self) -> None:
        """A stopped guest with a note on host1; host2 expects its disk."""
        driver = self.drivers["host1"]
        await driver.ensure_disk(spec())
        await driver.ensure_defined(spec())
        await driver.ensure_power("s1", 1, on=True)
        self.rooms["host1"].write("s1", "note")
        await driver.ensure_power("s1", 1, on=False)
        await self.drivers["host2"].ensure_defined(spec(copy=2))

    async def send(self) -> None:
        await self.drivers["host1"].send_disk("s1", 1, to_host="host2", to_copy=2)

    async def order(self, host: str, order: MachineOrder) -> MachineAnswer:
        body = await MemoryBus(self.hub, "api").call(machine_subject(host), msgspec.json.encode(order))
        return msgspec.json.decode(body, type=MachineAnswer)


def run(story: Callable[[TwoRooms], Awaitable[None]], persist: Path | None = None) -> None:
    async def whole() -> None:
        rooms = TwoRooms(persist)
        await rooms.serve()
        async with asyncio.timeout(30):
            await story(rooms)

    asyncio.run(whole())


def test_a_disk_goes_to_another_program_and_the_original_stays() -> None:
    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        await rooms.send()
        found = [one for room in rooms.rooms.values() for one in room.survey("s1")]
        assert [(one.host, one.copy, one.whole, one.marker) for one in found] == [
            ("host1", 1, True, "image:cirros+note"),
            ("host2", 2, True, "image:cirros+note"),
        ]
        await rooms.drivers["host2"].ensure_power("s1", 2, on=True)
        rooms.rooms["host2"].write("s1", "later")
        await rooms.send()
        assert rooms.rooms["host2"].read("s1") == "image:cirros+note+later", "sent again, it changes nothing"

    run(story)


def test_a_disk_for_a_copy_that_was_given_up_meanwhile_has_no_place() -> None:
    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        await rooms.drivers["host2"].ensure_absent("s1", 2)
        with pytest.raises(Failed, match="host2 does not expect a disk for copy 2"):
            await rooms.send()
        assert rooms.rooms["host2"].survey() == [] and rooms.rooms["host2"].storage.all() == []

    run(story)


def test_a_running_guest_is_not_sent() -> None:
    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        await rooms.drivers["host1"].ensure_power("s1", 1, on=True)
        with pytest.raises(Failed, match="stop it first"):
            await rooms.send()

    run(story)


@pytest.mark.parametrize("cut", ["host1", "host2", "gone"])
def test_nobody_there_or_cut_off(monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    monkeypatch.setattr(machine, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(machine, "ANSWER_SECONDS", 0.1)

    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        if cut == "gone":
            rooms.hub.detach("machine host2")
        else:
            rooms.rooms[cut].switch_link(cut, up=False)
        with pytest.raises(Failed) as failed:
            await rooms.send()
        assert failed.value.code == "unreachable" and not failed.value.final

    run(story)


def test_a_destination_that_is_restarted_gets_it_all_the_same() -> None:
    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        rooms.hub.detach("machine host2")
        sending = asyncio.create_task(rooms.send())
        await asyncio.sleep(0.1)
        assert not sending.done()
        await Machine(rooms.rooms["host2"], "host2").serve(MemoryBus(rooms.hub, "machine host2"))
        await sending
        assert rooms.rooms["host2"].survey("s1")[0].whole

    run(story)


def test_what_was_received_is_there_after_a_restart(tmp_path: Path) -> None:
    async def story(rooms: TwoRooms) -> None:
        await rooms.prepared()
        await rooms.send()
        for room in rooms.rooms.values():
            room.close()

    run(story, tmp_path)
    again = TwoRooms(tmp_path)
    assert again.rooms["host2"].survey("s1")[0].marker == "image:cirros+note"
    for room in again.rooms.values():
        room.close()


def test_switches_answer_how_it_is_now() -> None:
    async def story(rooms: TwoRooms) -> None:
        assert await rooms.order("host1", MachineOrder(link=False)) == MachineAnswer(power=True, link=False)
        assert await rooms.order("host1", MachineOrder(power=False)) == MachineAnswer(power=False, link=False)
        assert await rooms.order("host1", MachineOrder(power=True, link=True)) == MachineAnswer()
        refused = await rooms.order("host1", MachineOrder(write=WriteOrder("s1", "note")))
        assert refused.code == "not_running" and "runs nowhere" in refused.refused
        late = await rooms.order("host1", MachineOrder(receive=SentDisk("s1", 4, ["x"])))
        assert late.code == "no_guest"

    run(story)


def test_a_cut_link_is_silent_both_ways_and_only_time_tells() -> None:
    async def story(rooms: TwoRooms) -> None:
        hardware, heard = rooms.rooms["host1"], []
        link = SimulatedLink(MemoryBus(rooms.hub, "agent"), hardware, "host1")
        other = MemoryBus(rooms.hub, "other")

        async def hear(body: bytes) -> bytes:
            heard.append(body)
            return body

        await link.serve("to agent", hear)
        await other.serve("to other", hear)
        assert await link.call("to other", b"1") == b"1" and link.is_connected()
        await other.cast("to agent", b"2")
        await asyncio.sleep(0.01)
        assert heard == [b"1", b"2"]

        hardware.switch_link("host1", up=False)
        await link.cast("to other", b"3")
        await other.cast("to agent", b"4")
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoAnswer, match="host1 is cut off"):
            await link.call("to other", b"5", timeout=0.2)
        assert asyncio.get_running_loop().time() - began > 0.19
        assert heard == [b"1", b"2"] and not link.is_connected()

        hardware.switch_link("host1", up=True)
        link.dead = True
        with pytest.raises(NoAnswer):
            await link.call("to other", b"6", timeout=0.01)
        assert heard == [b"1", b"2"], "a dead agent's link stays silent whatever the switches say"

    run(story)
