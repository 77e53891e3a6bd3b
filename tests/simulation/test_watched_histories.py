"""Random histories with a failure watch that acts: hosts fall silent, flap and come back, the bus falls apart, the
fence command fails, hangs or lies, and hosts are drained meanwhile. The invariants and what the watch promises hold."""

import os
from collections import Counter

import pytest

from kilonova.hosts.states import fence
from kilonova.sim.histories import acts
from kilonova.sim.histories.acts import Act, History, WatchShape, draw
from kilonova.sim.histories.histories import make_cloud, run
from kilonova.sim.histories.watch import FenceCommand
from kilonova.sim.invariants.watch_promises import WatchPromises

SEEDS = range(150) if os.environ.get("KILONOVA_FULL") else (16,)
RULES = {"storm_percent": 60.0, "storm_window": 600.0, "fence_timeout": 20.0}
SHAPE = WatchShape(storm_hosts=1, fence_seconds=2.0, repaired_after=60.0, **RULES)
CREATES = [Act(after=1.0, do="create", server=number) for number in (0, 1, 3, 4, 5, 7)]


def history(*then):
    return History(seed="watch", hosts=6, conductors=2, shared=False, acts=[*CREATES, *then], watch=SHAPE)


def silence(host, after=60.0, word="power"):
    return Act(after=after, do="silence", who=host, option=word, seconds=200.0)


def test_histories_with_a_failure_watch_hold_the_invariants():
    states = Counter()
    for number in SEEDS:
        told = run(draw(f"watched-{number}", 80, watched=True))
        assert told.violations == [], number
        states.update(row["state"] for row in told.records.table("host_failures"))
        states["evacuated"] += sum(bool(row["operation_id"]) for row in told.records.table("host_failures"))
    assert states["returned"] and states["evacuated"], states


def test_watched_histories_contain_every_kind():
    drawn = [draw(str(number), 60, watched=True) for number in range(100)]
    struck = [act for one in drawn for act in one.acts]
    assert {act.do for act in struck} == {*acts.KINDS, *acts.NEMESES}
    assert {act.option for act in struck if act.do == "fence"} == {*acts.FENCES}
    assert {act.option for act in struck if act.do in ("silence", "flap", "rack")} == {*acts.SILENT_BY}
    assert all(one.watch is not None and one.hosts > one.watch.storm_hosts for one in drawn)


def test_a_quiet_history_with_one_dead_host():
    told = run(history(silence("host1")))
    records = told.records.table("host_failures")
    assert told.violations == [] and [(row["host"], row["state"]) for row in records] == [("host1", "returned")]
    assert records[0]["proof"] and records[0]["fenced_at"]


def test_more_fences_than_a_storm_allows_are_noticed(monkeypatch):
    two = history(silence("host1"), silence("host2", after=230.0))
    assert run(two).violations == []

    async def nobody(*_):
        return set()

    monkeypatch.setattr("kilonova.hosts.failures.fenced_lately", nobody)
    monkeypatch.setattr("kilonova.store.failures.fenced_lately", nobody)
    assert any("were fenced within storm_window, more than 1" in sentence for sentence in run(two).violations)


def test_a_watch_that_acts_although_it_is_disarmed_is_noticed(monkeypatch):
    disarmed = history(Act(after=60.0, do="disarm", seconds=500.0), silence("host1"))
    assert run(disarmed).violations == []

    async def never(*_):
        return None

    monkeypatch.setattr("kilonova.hosts.failures.disarmed", never)
    monkeypatch.setattr("kilonova.store.failures.disarmed", never)
    assert any("after the watch was disarmed" in sentence for sentence in run(disarmed).violations)


def test_a_guest_that_runs_twice_is_noticed(monkeypatch):
    """A command that says that it works, and switches nothing off."""
    cut = history(silence("host1", word="link"))

    def end(self, attempt, answer):
        attempt.ended, attempt.worked = self.cloud.loop.time(), True
        answer.set_result("off")

    monkeypatch.setattr(FenceCommand, "_end", end)
    assert any("runs on ['host1'," in sentence for sentence in run(cut).violations)


@pytest.mark.parametrize(("times", "says"), [(1, "it has answered for"), (2, "api does so since")])
def test_a_fence_without_a_reason_is_noticed(times, says):
    cloud = make_cloud(history())
    try:
        promises = WatchPromises(cloud, cloud.fence)
        cloud.start_all()
        for _ in range(30):
            cloud.loop.run_for(5.0)
            promises.look()
        assert promises.violations == []
        for _ in range(times):
            cloud.ask(lambda engine: fence(engine, "host1"))
            cloud.loop.run_for(0.1)
        assert any(says in sentence for sentence in promises.violations)
    finally:
        cloud.close()
