"""Random histories hold the invariants; the same seed gives the same journals in any process."""

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from kilonova.conductor.observer import Observer
from kilonova.domain.hardware import fit
from kilonova.sim.histories import acts
from kilonova.sim.histories.acts import Act, History, draw
from kilonova.sim.histories.histories import run, shrink
from kilonova.sim.invariants.volumes import at_any_time
from kilonova.sim.lab.outages import HANGS, REFUSES
from kilonova.sim.lab.records import Records

COUNT, LENGTH = (300, 80) if os.environ.get("KILONOVA_FULL") else (25, 40)
DRAINED = 120 if os.environ.get("KILONOVA_FULL") else 8


def test_histories_hold_the_invariants():
    failed = {}
    operations = 0
    for number in range(COUNT):
        told = run(draw(f"test-{number}", LENGTH))
        operations += told.operations
        if told.violations:
            failed[number] = told.violations
    assert not failed, failed
    assert operations > 5 * COUNT


def test_histories_in_which_operators_give_up_hold_the_invariants(monkeypatch):
    """Law 17: hosts refuse for good, operations wait, somebody abandons them, and what is left is settled at last."""
    monkeypatch.setitem(acts.NEMESES, "refusal", 30)
    abandoned = 0
    for number in range(4, 20):
        told = run(draw(f"test-{number}", 60))
        assert told.violations == []
        abandoned += sum(step["state"] == "abandoned" for step in told.records.table("steps"))
        if abandoned >= 4:
            return
    raise AssertionError(f"only {abandoned} steps were abandoned")


def test_histories_in_which_hosts_are_drained_hold_the_invariants(monkeypatch):
    """And returned, and cancelled half-way, while everything else happens that may happen."""
    monkeypatch.setitem(acts.NEMESES, "drain", 30)
    moved = 0
    for number in range(DRAINED):
        told = run(draw(f"drained-{number}", 60))
        assert told.violations == [], number
        moved += sum(row["kind"] == "relocate" and row["state"] == "done" for row in told.records.table("operations"))
    assert moved, "no server was ever drained"


DIGEST = """
import sys
import logging; logging.disable(logging.CRITICAL)
from kilonova.sim.histories.histories import draw, run
operations, digests = 0, []
for number in range(1000):
    told = run(draw(f"determinism-{number}", 60))
    operations += told.operations
    digests.append(told.digest)
    if operations >= int(sys.argv[1]):
        break
print(operations, *digests)
"""
LEAST = 500 if os.environ.get("KILONOVA_FULL") else 150


def test_two_processes_write_the_same_journals():
    """Many operations with crashes and lost messages; sha256 of the journals, with different hash seeds."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", DIGEST, str(LEAST)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "4242")
    ]
    first, second = (process.communicate()[0].split() for process in running)
    assert int(first[0]) >= LEAST
    assert first == second


def test_a_broken_engine_is_noticed(monkeypatch):
    """Negative control: a placement that forgets to release is found by the invariants, and the history shrinks."""

    async def forget_to_release(*_):
        from kilonova.placement.claims import Released

        return Released(0, 0)

    monkeypatch.setattr("kilonova.placement.claims.release", forget_to_release)
    create = Act(after=0.0, do="create", server=1)
    noise = [Act(after=1.0, do="create", server=n) for n in (2, 3)]
    delete = Act(after=20.0, do="delete", server=1)
    history = History(seed="broken", hosts=2, conductors=1, shared=False, acts=[create, *noise, delete])
    assert any("holds" in sentence for sentence in run(history).violations)
    smallest = shrink(history, lambda h: bool(run(h).violations))
    assert [act.do for act in smallest.acts] == ["create", "delete"]


def with_ports(then):
    create = Act(after=0.0, do="create", server=0, ports=1, given=True)
    afterwards = [Act(after=20.0, do=do, server=0) for do in then]
    return History(seed="ports", hosts=3, conductors=1, shared=False, acts=[create, *afterwards], addresses=2)


@pytest.mark.parametrize(
    ("what", "then", "says"),
    [
        ("release", ["delete"], "which is deleted"),
        ("bind", ["migrate"], "is bound to host"),
    ],
)
def test_ports_that_are_left_behind_are_noticed(monkeypatch, what, then, says):
    """Negative control: a network that does not do what it is told."""

    async def do_nothing(self, fence, *, server_id, host=""):
        return (await self.vifs([server_id])).get(server_id, [])

    history = with_ports(then=then)
    assert run(history).violations == []
    monkeypatch.setattr(f"kilonova.services.network.service.Networks.{what}", do_nothing)
    assert any(says in sentence for sentence in run(history).violations)


def test_ports_that_the_record_does_not_know_are_noticed(monkeypatch):
    monkeypatch.setattr("kilonova.operations.steps.ports._remember", lambda ctx, vifs: None)
    assert any("its record has the ports []" in sentence for sentence in run(with_ports(then=[])).violations)


def test_an_address_that_is_lost_is_noticed(monkeypatch):
    async def forget(*_):
        pass

    monkeypatch.setattr("kilonova.services.network.ranges.give_back", forget)
    assert any("addresses are free and" in sentence for sentence in run(with_ports(then=["delete"])).violations)


def test_histories_contain_every_kind():
    """What is never drawn proves nothing. Drains and the failure watch have histories of their own."""
    drawn = {act.do for number in range(200) for act in draw(str(number), 60).acts}
    assert drawn == {*acts.KINDS, *acts.NEMESES} - ({"drain"} | (acts.WATCHED.keys() - {"crash"}))


def test_histories_have_ports_of_every_sort():
    drawn = [draw(str(number), 60) for number in range(100)]
    wanted = {(act.ports, act.given) for history in drawn for act in history.acts if act.do == "create"}
    assert wanted == {(made, given) for made in (0, 1, 2) for given in (False, True)}
    assert {history.addresses for history in drawn} == set(acts.ADDRESSES)


def test_histories_have_volumes_groups_and_cells_of_every_sort():
    drawn = [draw(str(number), 60) for number in range(100)]
    created = [act for history in drawn for act in history.acts if act.do in ("create", "create_many")]
    assert {act.volumes for act in created} == set(acts.VOLUMES)
    assert {act.group for act in created} == {"", *acts.POLICIES}
    assert {act.number for act in created if act.do == "create_many"} == {2, 3}
    assert {history.reclaimed_after for history in drawn} == set(acts.RECLAIMED_AFTER)
    assert {history.confirmed_after for history in drawn} == set(acts.CONFIRMED_AFTER)
    assert {(history.cells, history.volumes) for history in drawn} == {(n, v) for n in (1, 2) for v in (False, True)}
    struck = {(history.cells, act.who) for history in drawn for act in history.acts if act.do == "outage"}
    assert struck == {(1, "cell0"), (1, "cell1"), (2, "cell0"), (2, "cell1"), (2, "cell2")}


def test_histories_have_blackouts_of_every_database():
    drawn = [draw(str(number), 60) for number in range(200)]
    struck = [(history, act) for history in drawn for act in history.acts if act.do == "blackout"]
    assert {(history.cells, act.who) for history, act in struck} == {
        (cells, name) for cells in (1, 2) for name in ("control", "placement", *(f"cell{n + 1}" for n in range(cells)))
    }
    assert all(act.seconds > 60.0 for _, act in struck), "longer than service_down_time"
    assert {act.option.split(" ")[0] for _, act in struck} == {REFUSES, HANGS}
    assert any(act.option.endswith(" ") for _, act in struck) and any("host" in act.option for _, act in struck)


def test_histories_declare_hosts_gone_in_every_way():
    drawn = [act for number in range(300) for act in draw(str(number), 60).acts if act.do == "gone"]
    assert {act.option for act in drawn} == {f"{death} {back}" for death in acts.DEATHS for back in acts.RETURNS}
    assert {act.seconds for act in drawn} == set(acts.MOVED_BEFORE)
    assert {act.number for act in drawn} == {0, 1, 2}, "no destination, a named one, one by force"


def test_histories_evacuate_and_rebuild_in_every_way():
    drawn = [act for number in range(200) for act in draw(str(number), 60).acts]
    evacuations = {(bool(act.who), act.option) for act in drawn if act.do == "evacuate"}
    assert evacuations == {(named, word) for named in (False, True) for word in acts.EVACUATIONS}
    assert {act.option for act in drawn if act.do == "rebuild"} == set(acts.REBUILDS)


LEAST_GONE = 40 if os.environ.get("KILONOVA_FULL") else 8
GONE_KINDS = {"host_gone", "evacuate", "rebuild", "rebuild_volume", "rebuild_in_cell0", "revert_resize"}


def test_histories_in_which_hosts_are_declared_gone_hold_the_invariants():
    """With servers that wait for confirm or revert, with copies, with another machine under the name. The operations
    that bring servers back all happen, and end well somewhere."""
    done, aside, confirm_only = Counter(), 0, 0
    for number in range(40):
        if number >= LEAST_GONE and done.keys() >= GONE_KINDS and aside and confirm_only:
            break
        told = run(draw(f"gone-{number}", 60, gone=20))
        assert told.violations == [], number
        done.update(op["kind"] for op in told.records.table("operations") if op["state"] == "done")
        aside += sum("declared gone" in row["reason"] for row in told.records.table("quarantine"))
        confirm_only += sum(bool(row["source_gone"]) for row in told.records.table("migrations"))
    assert done.keys() >= GONE_KINDS and aside and confirm_only, (done, aside, confirm_only)


def test_histories_with_many_blackouts_hold_the_invariants(monkeypatch):
    """Law 9: databases are away for longer than a host may be silent, hosts beat or die meanwhile, and somebody tries
    to evacuate all servers."""
    monkeypatch.setitem(acts.NEMESES, "blackout", 40)
    for number in range(20 if os.environ.get("KILONOVA_FULL") else 4):
        assert run(draw(f"blackout-{number}", 40)).violations == []


BLACKOUT = Act(after=70.0, do="blackout", who="cell1", option="refuses ", seconds=75.0)


@pytest.mark.parametrize("word", ["refuses ", "hangs "])
def test_a_living_host_that_counts_as_down_is_noticed(monkeypatch, word):
    """Negative control: an observer that does not know that it could not record what it heard."""
    blackout = msgspec.structs.replace(BLACKOUT, option=word)
    history = whole(Act(after=0.0, do="create", server=0), blackout, Act(after=250.0, do="stop", server=0))
    assert run(history).violations == []

    async def flush(self, echo_works):
        heard = await observe(self, echo_works)
        self.heard = {}
        return heard

    observe = Observer.flush
    monkeypatch.setattr(Observer, "flush", flush)
    monkeypatch.setattr(Observer, "_follows", lambda self, now: True)
    assert any("is alive and counts as down" in sentence for sentence in run(history).violations)


def whole(*acts, **more):
    return History(seed="whole", hosts=2, conductors=1, shared=False, acts=list(acts), **more)


async def do_nothing(*_, **__):
    return {}


BOOTED = Act(after=0.0, do="create", server=0, volumes=("boot!", "1"))
APART = [Act(after=20.0, do="create", server=number, group="anti-affinity") for number in (0, 2)]


@pytest.mark.parametrize(
    ("what", "history", "says"),
    [
        (
            "kilonova.services.volume.servers.ServerVolumes.release_all",
            whole(BOOTED, Act(after=20.0, do="delete", server=0), volumes=True),
            "which is deleted",
        ),
        (
            "kilonova.services.volume.servers._delete",
            whole(BOOTED, Act(after=20.0, do="delete", server=0), volumes=True),
            "was to go with",
        ),
        (
            "kilonova.operations.delete.leave",
            whole(*APART, Act(after=20.0, do="delete", server=0)),
            "is gone and still in the group anti-affinity",
        ),
        (
            "kilonova.quota.usage.uncount_server",
            whole(
                Act(after=0.0, do="create", server=0),
                Act(after=20.0, do="remove", server=0),
                reclaimed_after=4000.0,
            ),
            "is soft-delete and counts",
        ),
    ],
    ids=["attachments", "volumes", "members", "quota"],
)
def test_what_is_left_behind_is_noticed(monkeypatch, what, history, says):
    """Negative control: something is not done."""
    assert run(history).violations == []
    monkeypatch.setattr(what, do_nothing)
    assert any(says in sentence for sentence in run(history).violations)


def test_a_group_that_binds_nobody_is_noticed(monkeypatch):
    async def nobody(*_):
        return None

    history = whole(*APART)
    assert run(history).violations == []
    monkeypatch.setattr("kilonova.operations.steps.group.group_named", nobody)
    assert any("is not counted on" in sentence for sentence in run(history).violations)


def test_a_volume_of_two_servers_is_noticed():
    volumes = [{"id": "v1", "name": "mine", "multiattach": 0}, {"id": "v2", "name": "ours", "multiattach": 1}]
    held = [{"id": f"{v}-{s}", "volume_id": v, "server_id": s, "turn": 1} for v in ("v1", "v2") for s in ("a", "b")]
    mapped = [{"server_id": server, "queued_for_delete": 0} for server in ("a", "b")]
    tables = {"volumes": volumes, "volume_attachments": held, "server_mappings": mapped}
    found = list(at_any_time(Records(databases={"control": tables})))
    assert found == ["volume mine is attached to ['a', 'b']"]


def test_a_host_that_gives_a_cpu_twice_is_noticed(monkeypatch):
    """Negative control: three pinned servers on two hosts, and neither scheduler nor host looks who is there."""
    creates = [Act(after=5.0, do="create", server=number) for number in (1, 3, 5)]
    history = History(seed="pinned", hosts=2, conductors=2, shared=False, acts=creates)
    assert run(history).violations == []

    def forgetful(wish, hardware, claims):
        return fit(wish, hardware, [])

    monkeypatch.setattr("kilonova.compute.host_claims.fit", forgetful)
    monkeypatch.setattr("kilonova.scheduler.hardware._claims", lambda hardware, rows: ())
    assert any("is given to" in sentence for sentence in run(history).violations)
