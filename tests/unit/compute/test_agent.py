"""What an agent says of its host and remembers of its cloud; orders are in tests/engine/test_agent.py."""

import asyncio
import logging
import random

import msgspec
import pytest

from kilonova.bus import question_subject
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.hardware import HostClaim
from kilonova.domain.messages import (
    CacheOrder,
    ConsoleOpen,
    ConsoleQuestion,
    Holdings,
    HoldingsQuestion,
)
from kilonova.sim.lab.process import SeededIds
from kilonova.sim.loop.event_loop import SimClock, SimLoop
from kilonova.world import World
from tests.support.one_host import HOST, INTERVAL, OneHost, order


@pytest.fixture
def host():
    host = OneHost()
    yield host
    host.close()


@pytest.mark.parametrize("missing", ["driver", "memory"])
def test_an_agent_needs_a_driver_and_a_memory(missing):
    hardware, loop, source = Hardware(), SimLoop(), random.Random(1)
    hardware.add_host(HOST)
    given = {"driver": SimulatedDriver(hardware, HOST), "memory": SimulatedMemory(hardware, HOST), missing: None}
    bus = MemoryBus(MemoryHub(), HOST)
    with pytest.raises(RuntimeError, match="needs a driver and a memory"):
        Agent(World(SimClock(loop), SeededIds(source), source, bus, **given), HOST, {})
    loop.close()


# -- who it is ---------------------------------------------------------------------------------------------------------


def test_the_key_of_a_host_is_made_once_and_a_session_each_time(host):
    host.restart()
    first, second = host.registered
    assert first.key and first.key == second.key
    assert first.session and first.session != second.session
    assert [(one.host, one.storage, one.cell) for one in host.registered] == [(HOST, "nfs1", "cell2")] * 2
    assert {one.session for one in host.beats if one.epoch} == {first.session, second.session}


def test_a_host_remembers_its_cloud_and_what_it_has_seen_of_it(host):
    """Else a database that was restored would not be noticed, nor a host that was given to another cloud (law 15)."""
    host.cloud, host.register_again = "c1", True
    host.loop.run_for(INTERVAL)
    for seen in ({"cell1": (1, 5)}, {"control": (1, 9)}, {"cell1": (2, 1)}):
        host.answer = {"seen": seen}
        host.loop.run_for(INTERVAL)
    all_seen = {"cell1": (2, 1), "control": (1, 9)}
    host.loop.run_for(INTERVAL)
    assert (host.beats[-1].cloud, host.beats[-1].seen) == ("c1", all_seen)
    host.cloud = ""  # a conductor of the release before
    host.restart()
    host.cloud = "c1"
    host.restart()
    host.restart()
    assert [(one.cloud, one.seen) for one in host.registered[-3:]] == [("c1", all_seen)] * 3
    assert (host.beats[-1].cloud, host.beats[-1].seen) == ("c1", all_seen)
    host.cloud = "c2"
    host.restart()
    host.restart()
    assert (host.registered[-1].cloud, host.registered[-1].seen) == ("c2", {}), "what it saw of another cloud is void"
    assert (host.beats[-1].cloud, host.beats[-1].seen) == ("c2", {})


def test_the_first_cloud_that_takes_a_host_is_its_cloud(host):
    assert host.registered[0].cloud == "", "it never joined one"
    host.cloud, host.register_again = "c1", True
    host.loop.run_for(3 * INTERVAL)
    assert [one.cloud for one in host.registered] == ["", ""]
    assert host.beats[-1].cloud == "c1"
    host.register_again = True
    host.loop.run_for(2 * INTERVAL)
    assert host.registered[-1].cloud == "c1"


def test_an_agent_finds_the_claims_of_its_copies_again(host):
    host.kill()
    claim = HostClaim()
    host.hardware.note(HOST, "claim/s1/3", msgspec.to_builtins(claim))
    host.start()
    (copy,) = host.registered[-1].copies
    assert (copy.server, copy.copy, copy.power, copy.claim) == ("s1", 3, "absent", claim)


# -- registering -------------------------------------------------------------------------------------------------------


def test_registering_reports_the_machine_and_each_copy_with_its_turn(host):
    host.hardware.plant(HOST, "s1", 4)
    host.hardware.plant(HOST, "s2", 1, power="off")
    host.say(order("a", 7, 2, server="s1"))
    host.register_again = True
    host.loop.run_for(2 * INTERVAL)
    report = host.registered[-1]
    assert [(one.server, one.copy, one.power, one.turn) for one in report.copies] == [
        ("s1", 4, "on", 7),
        ("s2", 1, "off", 0),
    ]
    assert report.inventory.classes["VCPU"][0] == 64
    assert not report.filters and not host.beats[-1].filters
    assert host.agent.claims.hardware == report.inventory.hardware, "guests' shares are taken from it"


def test_a_host_that_filters_ports_says_so_in_every_message(host):
    """It is then sent the members of security groups; a host that was upgraded says so before it registers again."""
    host.agent.driver.filters_ports = True
    host.register_again = True
    host.say(order("a", 1, 1))
    host.loop.run_for(2 * INTERVAL)
    assert host.registered[-1].filters and host.beats[-1].filters
    host.say(order("b", 1, 2))
    assert host.finished[-1].filters


def test_a_refused_host_says_why_and_ends(host, caplog):
    host.refuses, host.register_again = "another machine has this name", True
    ending = host.loop.spawn(host.process, host.agent.ended())
    host.loop.run_for(INTERVAL / 2)
    assert not ending.done(), "it works until it is refused"
    with caplog.at_level(logging.ERROR):
        host.loop.run_for(2 * INTERVAL)
    assert ending.done()
    assert host.agent.refused == "another machine has this name"
    assert [one.getMessage() for one in caplog.records] == [
        "host host1: registration refused: another machine has this name"
    ]
    told = len(host.beats), len(host.registered)
    host.refuses = ""
    host.loop.run_for(5 * INTERVAL)
    assert (len(host.beats), len(host.registered)) == told, "it says nothing any more"


def test_a_host_is_part_of_the_cloud_once_what_it_settled_is_taken(host):
    """The conductor that told it what to settle may have died: then it registers again, at its next heartbeat."""
    host.kill()
    host.welcomes = False
    host.registered.clear()
    host.start()
    assert (host.agent.epoch, host.agent.welcomed, len(host.registered)) == (0, False, 1)
    host.loop.run_for(INTERVAL)
    assert (host.agent.epoch, host.agent.welcomed, len(host.registered)) == (0, False, 2)
    host.welcomes, host.epoch = True, 5
    beats = len(host.beats)
    host.loop.run_for(INTERVAL)
    assert (host.agent.epoch, host.agent.welcomed, len(host.registered)) == (5, True, 3)
    assert host.returned[-1].epoch == 5
    pulled = host.beats[beats]
    assert (pulled.epoch, pulled.pull) == (5, True), "it asks for its steps at once"


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_result_says_whose_it_is(host):
    host.say(order("a", 1, 1))
    (result,) = host.finished
    assert (result.host, result.session, result.epoch) == (HOST, host.registered[0].session, 1)
    assert (result.journal, result.operation, result.ordinal) == ("cell1", "operation-1", 1)
    assert (result.result, result.error) == ({}, None)


def test_a_step_that_breaks_is_for_another_host_one_that_is_refused_for_none(host, caplog):
    with caplog.at_level(logging.ERROR, "kilonova.compute.agent"):
        host.say(order("break", 1, 1), order("fail", 1, 1, server="s2"), order("refuse", 1, 1, server="s3"))
    errors = [one.error for one in host.finished]
    assert sorted(errors, key=lambda one: one["code"]) == [
        {"code": "failed", "message": "not here", "elsewhere": True, "final": False},
        {"code": "refused", "message": "nowhere", "elsewhere": False, "final": True},
        {"code": "unexpected", "message": "ZeroDivisionError: broken", "elsewhere": True, "final": False},
    ]
    (entry,) = caplog.records
    assert entry.getMessage() == "host host1: work of operation operation-1 failed" and entry.exc_info


def test_a_reason_for_which_results_are_refused_is_noted_again_after_registering(host, caplog):
    host.accepts = False
    with caplog.at_level(logging.DEBUG, logger="kilonova.compute.agent"):
        host.say(order("a", 1, 1))
        host.register_again = True
        host.loop.run_for(2 * INTERVAL)
        host.say(order("b", 1, 2))
    assert [one.getMessage() for one in caplog.records] == ["host host1: the result of work came too late: not now"] * 2


# -- ending ------------------------------------------------------------------------------------------------------------


def test_a_stopped_agent_leaves_its_steps_for_the_next_start(host):
    host.say(order("a", 1, 1, seconds=100.0), wait=INTERVAL + 1.0)
    ending = host.loop.spawn(host.process, host.agent.ended())
    host.do(host.agent.stop())
    assert host.log == ["a begun", "a aborted"], "when it returns, no step is at work"
    assert ending.done()
    host.loop.run_for(5 * INTERVAL)
    count = len(host.beats)
    host.hardware.plant(HOST, "s9", 1)
    switch_guest(host.hardware, HOST, "s9", False)
    host.loop.run_for(5 * INTERVAL)
    assert (len(host.beats), host.finished) == (count, []), "it says nothing any more"


def test_answers_to_dropped_orders_end_with_the_agent(host):
    host.say(order("new", 2, 1))
    host.silent = True
    host.say(order("late", 1, 1), wait=INTERVAL + 2.0)
    host.do(host.agent.stop())
    host.loop.run_for(3 * INTERVAL)
    count = len(host.finished)
    host.loop.run_for(5 * INTERVAL)
    assert len(host.finished) == count


def test_an_agent_that_was_never_started_can_be_stopped(host):
    world = host.agent.world
    fresh = Agent(world, HOST, {})
    host.do(fresh.stop())
    host.do(fresh.ended())


# -- questions ---------------------------------------------------------------------------------------------------------


def ask(host, question, kind=None):
    answer = host.do(host.bus.call(question_subject(HOST), msgspec.json.encode(question)))
    return answer if kind is None else msgspec.json.decode(answer, type=kind)


def test_a_host_answers_at_once_what_it_is_asked(host):
    host.hardware.plant(HOST, "s1", 4)
    host.say(order("a", 7, 2, server="s1", seconds=1000.0))
    count = len(host.beats)
    (copy,) = ask(host, HoldingsQuestion(), Holdings).copies
    assert (copy.server, copy.copy, copy.power, copy.turn) == ("s1", 4, "on", 7)
    assert "KILONOVA-GUEST name=planted" in ask(host, ConsoleQuestion("s1", 4), str)
    assert ask(host, CacheOrder(["img1", "img2"])) == b""
    assert host.hardware.host(HOST).images == {"img1", "img2"}
    assert ask(host, ConsoleOpen("s1", 4, "serial"), dict) == {"problem": "console_unavailable"}, "it has no door"
    assert len(host.beats) == count, "beside its steps and heartbeats"


class Door:
    """Holds each connection until it is closed."""

    def __init__(self):
        self.open = set()

    async def carry(self, url, token, stream):
        self.open.add(token)
        try:
            await asyncio.sleep(1e6)
        finally:
            self.open.discard(token)


def test_consoles_end_with_the_agent(host):
    host.kill()
    door = Door()
    host.consoles = door
    host.hardware.plant(HOST, "s1", 1)
    host.start()
    assert ask(host, ConsoleOpen("s1", 1, "serial", "http://api", "t"), dict) == {"problem": ""}
    assert door.open == {"t"}
    host.do(host.agent.stop())
    assert door.open == set()
