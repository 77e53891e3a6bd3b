"""The agents of simulated hosts live and die with the power of their machines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from kilonova.bus import machine_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute import simulated_fleet
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.compute.drivers.simulated.link import SimulatedLink
from kilonova.compute.simulated_fleet import ARRIVING_SECONDS, REVIVED_AFTER, SimulatedFleet
from kilonova.domain.errors import Failed
from kilonova.domain.machine import MachineOrder
from kilonova.sim.loop.event_loop import SimLoop


class Agent:
    """What the fleet sees of one."""

    def __init__(self, host: str, link: SimulatedLink) -> None:
        self.host, self.link = host, link
        self.welcomed, self.refused = False, ""
        self.done: list[str] = []
        self.fails = False
        self._ending = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        if self.fails:
            raise Failed("bus_away", "the bus cannot be reached")
        self.done.append("started")

    async def stop(self) -> None:
        await asyncio.sleep(0.5)
        self.done.append("stopped")
        self.refuse("")

    async def ended(self) -> None:
        await asyncio.wait([self._ending])

    def refuse(self, why: str) -> None:
        self.refused = why
        if not self._ending.done():
            self._ending.set_result(None)


class Fleet:
    """A few machines with a fleet over them, in virtual time."""

    def __init__(self, hosts: int) -> None:
        self.loop, self.hub = SimLoop(), MemoryHub()
        self.hardware = Hardware()
        self.agents: list[Agent] = []
        self.failing: set[str] = set()
        for number in range(1, hosts + 1):
            self.hardware.add_host(f"host{number}")
        self.fleet: SimulatedFleet = self.do(self._make())

    async def _make(self) -> SimulatedFleet:
        return SimulatedFleet(
            self.hardware,
            make_bus=lambda host: MemoryBus(self.hub, host),
            make_agent=self._agent,  # type: ignore[arg-type]
        )

    def _agent(self, host: str, link: SimulatedLink) -> Agent:
        agent = Agent(host, link)
        agent.fails = host in self.failing
        self.agents.append(agent)
        return agent

    def do(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def start(self) -> None:
        self.do(self.fleet.start(MemoryBus(self.hub, "controllers")))

    def power(self, host: str, on: bool) -> None:
        self.inside(lambda: self.hardware.switch_power(host, on))

    def crash(self, host: str) -> None:
        self.inside(lambda: self.hardware.crash(host))

    def inside(self, work: Callable[[], object]) -> None:
        """On the loop, but before anything else runs there."""

        async def inside() -> None:
            work()

        self.do(inside())

    def of(self, host: str) -> list[Agent]:
        return [one for one in self.agents if one.host == host]


Made = Callable[[int], Fleet]


@pytest.fixture
def made() -> Iterator[Made]:
    fleets: list[Fleet] = []

    def make(hosts: int) -> Fleet:
        fleets.append(Fleet(hosts))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.do(fleet.fleet.stop())
        fleet.loop.close()


def test_each_machine_with_power_has_an_agent(made: Made) -> None:
    fleet = made(3)
    fleet.power("host2", False)
    fleet.start()
    assert [(one.host, one.done) for one in fleet.agents] == [("host1", ["started"]), ("host3", ["started"])]
    assert all(one.link.is_connected() for one in fleet.agents)
    fleet.power("host2", True)
    fleet.loop.run_for(0.1)
    assert [one.done for one in fleet.of("host2")] == [["started"]]


def test_every_machine_can_be_switched_over_the_bus(made: Made) -> None:
    """Also one without power, and one whose agent is cut off."""
    fleet = made(2)
    fleet.power("host2", False)
    fleet.start()
    bus = MemoryBus(fleet.hub, "somebody")
    for host, order in (("host1", MachineOrder(link=False)), ("host2", MachineOrder(power=True))):
        fleet.do(bus.call(machine_subject(host), msgspec.json.encode(order)))
    assert not fleet.hardware.is_linked("host1") and fleet.hardware.is_running("host2")
    fleet.loop.run_for(0.1)
    assert len(fleet.of("host2")) == 1


def test_an_agent_dies_with_the_power_and_another_one_starts_with_it(made: Made) -> None:
    fleet = made(2)
    fleet.start()
    (first,) = fleet.of("host1")
    fleet.power("host1", False)
    assert first.link.dead, "at once: nothing that it still says is heard"
    fleet.loop.run_for(5.0)
    assert first.done == ["started", "stopped"] and len(fleet.of("host1")) == 1
    fleet.power("host1", True)
    fleet.loop.run_for(0.1)
    assert [one.done for one in fleet.of("host1")] == [["started", "stopped"], ["started"]]
    assert [one.done for one in fleet.of("host2")] == [["started"]]


def test_power_that_comes_and_goes_leaves_one_agent_at_most(made: Made) -> None:
    fleet = made(1)
    fleet.start()
    fleet.power("host1", False)
    fleet.inside(lambda: [fleet.hardware.switch_power("host1", on) for on in (True, False, True)])
    fleet.loop.run_for(5.0)
    assert [one.link.dead for one in fleet.agents] == [True, False]
    fleet.inside(lambda: [fleet.hardware.switch_power("host1", on) for on in (False, True, False)])
    fleet.loop.run_for(5.0)
    assert all(one.link.dead for one in fleet.agents)


def test_a_crashed_agent_is_started_again_after_a_while(made: Made) -> None:
    fleet = made(1)
    fleet.start()
    fleet.crash("host1")
    assert fleet.agents[0].link.dead
    fleet.loop.run_for(REVIVED_AFTER * 0.9)
    assert len(fleet.agents) == 1
    fleet.loop.run_for(REVIVED_AFTER * 0.2)
    assert [one.done for one in fleet.agents] == [["started", "stopped"], ["started"]]


def test_an_agent_that_cannot_start_again_is_tried_until_it_can(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    fleet = made(1)
    fleet.start()
    fleet.failing = {"host1"}
    with caplog.at_level(logging.ERROR, "kilonova.compute.simulated_fleet"):
        fleet.crash("host1")
        fleet.loop.run_for(3.5 * REVIVED_AFTER)
    assert len(fleet.agents) == 4
    assert [one.getMessage() for one in caplog.records] == ["host host1: the bus cannot be reached"] * 3
    assert all(one.link.dead for one in fleet.agents)
    fleet.failing = set()
    fleet.loop.run_for(REVIVED_AFTER)
    assert fleet.agents[-1].done == ["started"] and not fleet.agents[-1].link.dead


def test_a_fleet_whose_first_agent_cannot_start_says_so(made: Made) -> None:
    fleet = made(2)
    fleet.failing = {"host2"}
    with pytest.raises(Failed, match="the bus cannot be reached"):
        fleet.start()
    assert [one.link.dead for one in fleet.agents] == [False, True]
    assert fleet.fleet.awaited() == ["host1"]


def test_when_a_fleet_stops_its_agents_have_stopped_and_none_is_started_again(made: Made) -> None:
    fleet = made(3)
    fleet.start()
    fleet.crash("host3")
    fleet.loop.run_for(0.1)
    fleet.do(fleet.fleet.stop())
    assert [one.done for one in fleet.agents] == [["started", "stopped"]] * 3
    assert not any(one.link.is_connected() for one in fleet.agents)
    fleet.power("host1", False)
    fleet.power("host1", True)
    fleet.loop.run_for(10.0)
    assert len(fleet.agents) == 3


def test_a_fleet_waits_only_a_moment_for_an_agent_that_does_not_stop(made: Made) -> None:
    fleet = made(1)
    fleet.start()

    async def hang() -> None:
        await asyncio.sleep(1e6)

    fleet.agents[0].stop = hang  # type: ignore[method-assign]
    fleet.do(fleet.fleet.stop())
    assert fleet.loop.time() < 10


def test_the_first_refusal_ends_the_fleet(made: Made) -> None:
    fleet = made(2)
    fleet.start()
    assert not fleet.fleet.refused.done()
    for agent in fleet.agents:
        agent.refuse(f"{agent.host} is another's")
    fleet.loop.run_for(0.1)
    assert fleet.fleet.refused.result() == "host host1: registration refused: host1 is another's"


def test_an_agent_that_is_stopped_is_not_a_refusal(made: Made) -> None:
    fleet = made(1)
    fleet.start()
    fleet.power("host1", False)
    fleet.loop.run_for(1.0)
    assert not fleet.fleet.refused.done()


def test_hosts_are_awaited_until_they_are_part_of_the_cloud_or_cannot_be(made: Made) -> None:
    fleet = made(5)
    fleet.power("host5", False)
    fleet.start()
    assert fleet.fleet.awaited() == ["host1", "host2", "host3", "host4"]
    fleet.agents[0].welcomed = True
    assert fleet.fleet.awaited() == ["host2", "host3", "host4"]
    fleet.agents[1].refuse("no")
    assert fleet.fleet.awaited() == ["host3", "host4"]
    fleet.hardware.switch_link("host3", up=False)
    assert fleet.fleet.awaited() == ["host4"]
    fleet.power("host4", False)
    assert fleet.fleet.awaited() == []


def test_so_many_hosts_register_at_a_time(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next begins when one is registered, or when nobody was for a while."""
    monkeypatch.setattr(simulated_fleet, "ARRIVING", 2)
    fleet = made(6)
    starting = fleet.loop.create_task(fleet.fleet.start(MemoryBus(fleet.hub, "controllers")))
    fleet.loop.run_for(ARRIVING_SECONDS / 2)
    assert len(fleet.agents) == 2
    fleet.agents[0].welcomed = True
    fleet.loop.run_for(0.1)
    assert len(fleet.agents) == 3
    fleet.loop.run_for(ARRIVING_SECONDS - 0.3)
    assert len(fleet.agents) == 3, "the last one was registered less than that ago"
    fleet.loop.run_for(0.5)
    assert len(fleet.agents) > 3, "a cell may be away"
    for agent in fleet.agents:
        agent.welcomed = True
    fleet.loop.run_for(0.1)
    for agent in fleet.agents:
        agent.welcomed = True
    fleet.loop.run_for(0.1)
    assert len(fleet.agents) == 6 and starting.done()
    fleet.loop.run_until_complete(starting)
