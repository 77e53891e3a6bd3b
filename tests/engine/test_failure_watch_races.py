"""The failure watch when time passes between what it sees and what it does: watchers that stand still, hosts that come
back in the middle, fences that follow each other."""

import asyncio
import contextvars

import pytest

from kilonova.hosts.failures import disarm_watch, look
from kilonova.hosts.states import declare_down, declare_up
from kilonova.placement.inventories import set_accepting
from kilonova.settings import HaOptions
from kilonova.sim.lab.cloud import DATABASE_CLOCK
from kilonova.sim.loop.process import current_process
from tests.engine.test_failure_watch import (
    DOWN,
    LATER,
    SOON,
    cut,
    decisions,
    evacuations,
    failures,
    kill,
    mend,
    status,
    watched,
    wrong_afterwards,
)

__all__ = ["watched"]  # the fixture


def test_a_host_that_is_fenced_late_counts_from_then_on(watched):
    """Its record is old: the command had failed for a long time."""
    cloud = watched(hosts=30, rules=HaOptions(automatic=True, storm_hosts=1))
    cloud.fence.broken = "no route to its power switch"
    kill(cloud, "host1")
    cloud.loop.run_for(1200.0)
    cloud.fence.broken = ""
    while failures(cloud) != [("host1", "done")]:
        cloud.loop.run_for(10.0)
    cloud.fence.fenced.clear()
    kill(cloud, "host2")
    cloud.loop.run_for(SOON + LATER)
    assert decisions(cloud) == {"host2": "held"} and cloud.fence.fenced == []
    cloud.loop.run_for(600.0)
    assert cloud.fence.fenced == ["host2"]


def test_hosts_that_came_back_after_their_fence_count_too(watched):
    """A network that fails rack by rack must not switch the whole cloud off, one host after the other."""
    cloud = watched(hosts=30, rules=HaOptions(automatic=True, storm_hosts=2))
    for host in ("host1", "host2", "host3"):
        kill(cloud, host)
        cloud.loop.run_for(SOON)
        cloud.hardware.switch_power(host, on=True)
        cloud.loop.run_for(30.0)
        if host == "host2":
            assert cloud.fence.fenced == ["host1", "host2"] and decisions(cloud) == {}
    assert cloud.fence.fenced == ["host1", "host2"]
    kill(cloud, "host3")
    cloud.loop.run_for(SOON)
    assert "1 of 30 hosts are silent, and 2 came back after they were fenced" in status(cloud)["silent"][0]["why"]
    cloud.loop.run_for(600.0)
    assert cloud.fence.fenced == ["host1", "host2", "host3"]


def test_a_host_whose_fence_command_failed_counts_too(watched):
    """It may have been switched off all the same."""
    cloud = watched(rules=HaOptions(automatic=True, storm_hosts=1))
    cloud.fence.broken = "it is off, but that cannot be read back"
    kill(cloud, "host1")
    cloud.loop.run_for(SOON)
    cloud.hardware.switch_power("host1", on=True)
    cloud.loop.run_for(30.0)
    assert failures(cloud) == [("host1", "returned")] and cloud.fence.fenced == ["host1"]
    kill(cloud, "host2")
    cloud.loop.run_for(SOON)
    assert decisions(cloud) == {"host2": "held"} and cloud.fence.fenced == ["host1"]


@pytest.mark.parametrize(("seconds", "back_after"), [(180.0, 60.0), (50.0, 10.0)])
def test_a_watcher_that_stood_still_fences_nobody_who_answers(watched, monkeypatch, seconds, back_after):
    """It goes on between its last look and the command."""
    cloud = watched(conductors=2)
    cloud.make("a", host="host1")
    stalled = stall_before_fence(cloud, monkeypatch, seconds, back_after)
    kill(cloud, "host1")
    cloud.loop.run_for(2 * SOON + LATER)
    assert stalled and cloud.fence.fenced == [] and cloud.hardware.is_running("host1")
    assert wrong_afterwards(cloud) == [] and failures(cloud) == [("host1", "returned")]


def test_a_watcher_that_stood_still_does_not_begin_beside_its_successor(watched, monkeypatch):
    cloud = watched(conductors=2)
    cloud.fence.hangs = True
    stalled = stall_before_fence(cloud, monkeypatch, 150.0)
    kill(cloud, "host1")
    while not cloud.fence.fenced:
        cloud.loop.run_for(1.0)
    cloud.loop.run_for(50.0)
    assert stalled and cloud.fence.fenced == ["host1"]


def stall_before_fence(cloud, monkeypatch, seconds, back_after=None):
    """The first watcher that fences host1 stands still when it has closed that host; then host1 may come back."""
    stalled = []

    async def standing_still(*given):
        answer = await set_accepting(*given)
        process = current_process()
        if not stalled and process.name.startswith("conductor") and not cloud.hardware.is_running("host1"):
            stalled.append(process.name)
            cloud.loop.freeze(process)
            outside = contextvars.Context()
            cloud.loop.call_later(seconds, cloud.loop.thaw, process, context=outside)
            if back_after is not None:
                cloud.loop.call_later(back_after, cloud.hardware.switch_power, "host1", True, context=outside)
            await asyncio.sleep(0)
        return answer

    monkeypatch.setattr("kilonova.hosts.states.set_accepting", standing_still)
    return stalled


@pytest.mark.parametrize(("before", "due"), [([], 0.0), ([("host1", "fenced")], 20.0)], ids=["fence", "evacuation"])
def test_disarmed_after_it_looked_the_watch_begins_nothing(watched, monkeypatch, before, due):
    cloud = watched()
    kill(cloud, "host1")
    cloud.loop.run_for(DOWN + 10.0)
    while failures(cloud) != before:
        cloud.loop.run_for(1.0)
    said = []

    async def disarmed_afterwards(engine, *given):
        seen = await look(engine, *given)
        acts = [one for one in seen.silent.values() if one.decision.outcome == "acts"]
        waited = [row for row in seen.failures.values() if seen.now - row["changed_at"] >= due]
        if (acts or waited) and not said:
            said.append(engine.worker)
            await disarm_watch(engine, 600.0, "I look myself", cloud.cause())
        return seen

    monkeypatch.setattr("kilonova.ha.watch.look", disarmed_afterwards)
    cloud.loop.run_for(LATER)
    assert said and failures(cloud) == before and evacuations(cloud) == []


def test_watchers_that_decided_at_the_same_time_are_braked_together(watched, monkeypatch):
    """Neither decision knows of the other fence."""
    monkeypatch.setattr("kilonova.domain.failure_watch.storm_sentence", lambda *_: "")
    cloud = watched(conductors=2, rules=HaOptions(automatic=True, storm_hosts=1))
    kill(cloud, "host1", "host2", "host3")
    cloud.loop.run_for(SOON + LATER)
    assert len(cloud.fence.fenced) == 1


def test_a_proof_is_worth_nothing_once_the_host_has_started_again(watched, monkeypatch):
    """The watcher stands still after the command. Meanwhile the host is switched on, runs its guests and is cut off."""
    cloud = watched()
    server, _ = cloud.make("a", host="host1")
    real, proofs = cloud.fence.fence, []

    async def late(host):
        proofs.append(await real(host))
        if len(proofs) == 1:
            cloud.hardware.switch_power(host, on=True)
            await asyncio.sleep(20.0)
            cut(cloud, host)
            await asyncio.sleep(5.0)
        return proofs[-1]

    monkeypatch.setattr(cloud.fence, "fence", late)
    kill(cloud, "host1")
    for _ in range(100):
        cloud.loop.run_for(5.0)
        assert len(cloud.hardware.running(server)) <= 1
    assert len(proofs) == 2 and len(evacuations(cloud)) == 1
    assert cloud.server(server)["host"] != "host1" and wrong_afterwards(cloud) == []


def test_a_host_that_falls_silent_again_is_fenced_again(watched):
    """It came back and died while no watcher could see it: its old fence proves nothing any more."""
    cloud = watched()
    cloud.make("a", host="host1")
    kill(cloud, "host1")
    while failures(cloud) != [("host1", "done")]:
        cloud.loop.run_for(1.0)
    cloud.hardware.switch_power("host1", on=True)
    while cloud.records().table("hosts")[0]["fenced"] or cloud.records().table("hosts")[0]["returning"]:
        cloud.loop.run_for(0.25)
    cloud.outages.begin("control")
    cloud.hardware.switch_power("host1", on=False)
    cloud.loop.run_for(1.5 * DOWN)
    cloud.outages.end("control")
    assert cloud.records().table("host_failures")[0]["state"] == "done"
    cloud.loop.run_for(10.0)
    assert failures(cloud) == [("host1", "returned")] and list(decisions(cloud)) == ["host1"]


def test_disarming_for_a_time_does_not_shorten_what_a_lie_began(watched):
    cloud = watched(hosts=4)
    cloud.make("a", host="host1")
    cloud.fence.lies = True
    cut(cloud, "host1")
    while not cloud.fence.fenced:
        cloud.loop.run_for(1.0)
    mend(cloud)
    cloud.loop.run_for(60.0)
    cloud.do(lambda engine: disarm_watch(engine, 60.0, "the switch is replaced", cloud.cause()))
    cloud.loop.run_for(100.0)
    assert not status(cloud)["armed"] and "its agent never stopped" in status(cloud)["disarmed"]["reason"]


def test_a_host_that_was_only_declared_down_proves_no_lie(watched):
    """The command failed, an operator declares the host down and up again: its agent never stopped, and nobody said
    that it had."""
    cloud = watched()
    cloud.make("a", host="host1")
    cloud.fence.broken = "no route to its power switch"
    cut(cloud, "host1")
    while failures(cloud) != [("host1", "fence_failed")]:
        cloud.loop.run_for(1.0)
    before = cloud.records().table("host_failures")[0]["fenced_at"]
    cloud.do(lambda engine: declare_down(engine, "host1"))
    while failures(cloud) != [("host1", "fenced")]:
        cloud.loop.run_for(1.0)
    record = cloud.records().table("host_failures")[0]
    assert (record["proof"], record["fenced_at"]) == ("host1 was declared down", before)
    cloud.do(lambda engine: declare_up(engine, "host1"))
    mend(cloud)
    cloud.loop.run_for(60.0)
    assert failures(cloud) == [("host1", "returned")] and status(cloud)["armed"] and evacuations(cloud) == []
    assert wrong_afterwards(cloud) == []


def test_a_host_that_is_declared_down_after_its_fence_failed_is_evacuated(watched):
    cloud = watched()
    server, _ = cloud.make("a", host="host1")
    cloud.fence.broken = "no route to its power switch"
    kill(cloud, "host1")
    while failures(cloud) != [("host1", "fence_failed")]:
        cloud.loop.run_for(1.0)
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.loop.run_for(LATER)
    assert failures(cloud) == [("host1", "done")] and cloud.server(server)["host"] != "host1"
    assert status(cloud)["records"][0]["proof"] == "host1 was declared down"


@pytest.mark.parametrize("broken", ["", "no route to its power switch"], ids=["fenced", "fence_failed"])
def test_the_watch_goes_on_when_the_clock_is_set_back(watched, broken):
    """Law 16: what was recorded an hour ahead of now was recorded now."""
    cloud = watched()
    cloud.fence.broken = broken
    kill(cloud, "host1")
    while failures(cloud) != [("host1", "fence_failed" if broken else "fenced")]:
        cloud.loop.run_for(1.0)
    cloud.set_clock(DATABASE_CLOCK, -3600.0)
    cloud.fence.broken = ""
    cloud.loop.run_for(15.0)
    assert evacuations(cloud) == []  # the pause is not skipped either
    cloud.loop.run_for(SOON + LATER)
    assert failures(cloud) == [("host1", "done")]


def test_fences_count_no_longer_than_their_time_when_the_clock_is_set_back(watched):
    cloud = watched(hosts=30, rules=HaOptions(automatic=True, storm_hosts=1))
    kill(cloud, "host1")
    while failures(cloud) != [("host1", "done")]:
        cloud.loop.run_for(1.0)
    cloud.hardware.switch_power("host1", on=True)
    cloud.loop.run_for(30.0)
    assert failures(cloud) == [("host1", "returned")]
    cloud.set_clock(DATABASE_CLOCK, -3600.0)
    kill(cloud, "host2")
    cloud.loop.run_for(500.0)
    assert cloud.fence.fenced == ["host1"]
    cloud.loop.run_for(300.0)
    assert cloud.fence.fenced == ["host1", "host2"]
