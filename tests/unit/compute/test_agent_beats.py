"""When a host's heartbeats come and what they say; results and registrations are in test_agent.py."""

import logging

import pytest

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.compute.drivers.simulated.driver import SimulatedDriver
from tests.support.one_host import HOST, INTERVAL, OneHost, order


@pytest.fixture
def host():
    host = OneHost()
    yield host
    host.close()


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_a_heartbeat_comes_once_an_interval_also_after_one_that_was_woken(host):
    host.loop.run_for(2 * INTERVAL)
    host.loop.run_for(INTERVAL / 2)
    host.wake()
    host.loop.run_for(1.0)
    woken = host.beats[-1]
    count = len(host.beats)
    assert woken.pull and not host.beats[-2].pull
    host.loop.run_for(INTERVAL - 2.0)
    assert len(host.beats) == count, "the next one is due an interval after the last one"
    host.loop.run_for(2.0)
    assert (len(host.beats), host.beats[-1].pull) == (count + 1, False)


def test_more_work_than_one_answer_takes_is_asked_for_at_once(host):
    host.loop.run_for(2 * INTERVAL)
    count = len(host.beats)
    host.answer = {"more": True}
    host.loop.run_for(INTERVAL)
    assert [one.pull for one in host.beats[count:]] == [False, True]


def test_a_host_that_shall_register_begins_nothing_before_it_has(host):
    host.register_again = True
    host.say(order("a", 1, 1))
    assert host.log == [], "the step is handed out again"
    assert len(host.registered) == 2


@pytest.mark.parametrize("pull", [False, True], ids=["", "it was woken"])
def test_a_host_whose_heartbeat_nobody_answers_says_to_all_that_it_lives(host, pull):
    """And it tries again soon; what it was woken for is still there."""
    host.cloud, host.register_again = "c1", True
    host.loop.run_for(2 * INTERVAL)
    host.absent = True
    if pull:
        host.wake()
    host.loop.run_for(INTERVAL)
    assert {(one.host, one.session, one.cloud) for one in host.alive} == {(HOST, host.registered[0].session, "c1")}
    assert len(host.alive) in (3, 4, 5) if pull else len(host.alive) in (1, 2, 3, 4)
    host.absent = False
    count = len(host.beats)
    host.loop.run_for(INTERVAL / 4)
    assert len(host.beats) == count + 1
    assert host.beats[-1].pull is pull


@pytest.mark.parametrize("seconds", [2.0, 2 * INTERVAL], ids=["is answered", "is not answered"])
def test_a_host_that_is_woken_while_a_heartbeat_is_under_way_asks_for_work_at_once(host, seconds):
    host.loop.run_for(2 * INTERVAL)
    host.hangs = seconds
    host.loop.run_for(INTERVAL)
    host.wake()
    host.hangs, count = 0.0, len(host.beats) + (seconds < INTERVAL)
    host.loop.run_for(0.9 * INTERVAL)
    assert [one.pull for one in host.beats[count : count + 1]] == [True]


def test_a_host_that_shall_register_does_so_at_once(host):
    host.loop.run_for(2 * INTERVAL)
    host.register_again = True
    host.wake()
    host.loop.run_for(1.0)
    assert len(host.registered) == 2


def test_a_plain_heartbeat_is_written_nowhere(host):
    """Each write waits for the disk of the host."""
    host.loop.run_for(3 * INTERVAL)
    assert len(host.beats) > 2 and [*host.hardware.recall(HOST)] == ["key"]


def test_a_host_without_conductors_asks_four_times_an_interval(host):
    host.kill()
    host.absent = True
    host.registered.clear()
    host.start()
    host.loop.run_for(3 * INTERVAL)
    assert host.registered == [] and not host.agent.welcomed
    host.absent = False
    host.loop.run_for(INTERVAL / 4)
    assert len(host.registered) == 1 and host.agent.welcomed


@pytest.mark.parametrize(("how", "traced"), [("error", False), ("bug", True)])
def test_whatever_goes_wrong_the_host_registers_as_soon_as_it_can(host, caplog, monkeypatch, how, traced):
    async def broken():
        raise ZeroDivisionError("the driver is wrong")

    host.kill()
    with caplog.at_level(logging.WARNING, "kilonova.compute.agent"):
        if how == "error":
            host.hardware.fail(HOST, "copies", 4)
            host.start()
        else:
            monkeypatch.setattr(SimulatedDriver, "copies", lambda _: broken())
            host.start()
            monkeypatch.undo()
        seen = len(host.registered)
        host.loop.run_for(INTERVAL)
    assert len(host.registered) == seen + 1 and host.agent.welcomed
    entries = [one for one in caplog.records if one.name == "kilonova.compute.agent"]
    assert len(entries) == (4 if how == "error" else 1), "a quarter of an interval apart"
    assert all(bool(one.exc_info) is traced and one.getMessage().startswith("host host1: ") for one in entries)


# -- powers ------------------------------------------------------------------------------------------------------------


def test_a_guest_that_ends_is_reported_until_it_is_noted(host):
    host.hardware.plant(HOST, "s1", 1)
    host.loop.run_for(2 * INTERVAL)
    count = len(host.beats)
    switch_guest(host.hardware, HOST, "s1", False)
    host.loop.run_for(0.5)
    assert [one.powers for one in host.beats[count:]] == [[("s1", 1, False)]], "at once"
    host.answer = {"noted": [("s1", 1)]}
    host.loop.run_for(2 * INTERVAL)
    assert [one.powers for one in host.beats[count + 1 :]] == [[("s1", 1, False)], []]


def test_a_power_that_a_step_changes_is_read_after_it(host):
    host.hardware.plant(HOST, "s1", 1)
    host.say(order("a", 1, 1, seconds=3 * INTERVAL), wait=INTERVAL + 1.0)
    switch_guest(host.hardware, HOST, "s1", False)
    host.loop.run_for(1.0)
    assert host.beats[-1].powers == [] and host.beats[-1].has == ["operation-1/1"]
    guest = host.hardware.host(HOST).guests["s1", 1]
    host.do(host.agent.driver.ensure_power("s1", 1, on=True))
    assert guest.power == "on"
    host.loop.run_for(5 * INTERVAL)
    assert {power for beat in host.beats for power in beat.powers} == {("s1", 1, True)}


def test_changes_before_a_host_registers_are_in_its_registration_alone(host):
    """Also where they come before the first heartbeat, and the next change is reported as ever."""
    host.hardware.plant(HOST, "s1", 1)
    host.kill()
    host.absent = True
    host.start()
    switch_guest(host.hardware, HOST, "s1", False)
    host.loop.run_for(INTERVAL)
    host.absent, host.beats = False, []
    host.loop.run_for(2 * INTERVAL)
    assert [one.power for one in host.registered[-1].copies] == ["off"]
    assert [one.powers for one in host.beats] == [[]] * len(host.beats) != []
    switch_guest(host.hardware, HOST, "s1", True)
    host.loop.run_for(1.0)
    assert host.beats[-1].powers == [("s1", 1, True)]
