"""Which step a conductor takes, and what an abandoned one says: decided by given records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Superseded
from kilonova.domain.messages import Beat
from kilonova.engine import take
from kilonova.engine.abandon import _problem
from kilonova.engine.course import ABANDONED, Problem
from kilonova.engine.findings import Intervention
from kilonova.engine.journal import LONGEST_PAUSE
from kilonova.engine.model import CONTROL, Step
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell, journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, OPERATION, SERVER, STEP, engine_of, operation, play, store_of

OP = {"is_live": True, "ordinal": 3}
READY = {"host": "", "open": 1, "state": "ready", "worker": None}
ABANDONED_BEFORE = Problem(code=ABANDONED, message="bind was abandoned by a: b", step="bind")
MINE = {**READY, "state": "taken", "worker": "me"}


@pytest.mark.parametrize(
    ("op", "row", "is_due", "early", "calls", "is_taken"),
    [
        (OP, READY, True, None, 1, True),
        (OP, READY, False, None, 1, False),
        (OP, READY, False, 3, 1, True),  # what it waits for may be there
        (OP, READY, False, 2, 1, False),  # that was another step
        (OP, {**READY, "host": "host1"}, True, None, 1, False),
        (OP, {**READY, "open": 0}, True, None, 1, False),
        (OP, None, True, None, 1, False),
        ({**OP, "is_live": False}, READY, True, None, 1, False),
        (None, READY, True, None, 1, False),
        (OP, MINE, True, None, 1, False),
        (OP, MINE, True, None, 2, True),  # our own COMMIT was unknown
        (OP, {**MINE, "worker": "other"}, True, None, 2, False),
        (OP, {**MINE, "state": "failed"}, True, None, 2, False),
    ],
)
def test_a_conductor_takes_a_step_that_is_due_and_nobodys(
    monkeypatch: pytest.MonkeyPatch, op: Any, row: Any, is_due: bool, early: int | None, calls: int, is_taken: bool
) -> None:
    taken: list[str] = []

    def answering(value: Any) -> Any:
        async def answer(*given: Any, **named: Any) -> Any:
            return value

        return answer

    async def mark(tx: Any, op: Any, step: Any, row: Any, worker: str) -> None:
        taken.append(worker)

    async def write(journal: Any, body: Any) -> Any:
        results = [await body(None) for _ in range(calls)]  # repeated when its COMMIT was unknown
        return results[-1]

    monkeypatch.setattr(take.log, "load", answering(op and SimpleNamespace(**op)))
    monkeypatch.setattr(take.log, "fetch_step", answering(row))
    monkeypatch.setattr(take.log, "is_due", answering(is_due))
    monkeypatch.setattr(take, "_step", answering(("go", "step")))
    monkeypatch.setattr(take, "_mark_taken", mark)
    monkeypatch.setattr(take, "load_server", answering(None))
    engine: Any = SimpleNamespace(worker="me", write=write)
    journal: Any = None
    following = asyncio.run(take.take_control(engine, journal, "o", early=early))
    assert (following is not None) is is_taken
    assert taken == (["me"] * (1 if calls == 1 or row is MINE else 0) if is_taken else [])


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (None, "plug was abandoned by op: gone"),
        (Problem(code="broken", message="no space", step="copy"), "copy: no space plug was abandoned by op: gone"),
        (
            ABANDONED_BEFORE,
            "bind was abandoned by a: b plug was abandoned by op: gone",
        ),
    ],
)
def test_the_first_reason_is_said_once(before: Problem | None, text: str) -> None:
    cause = Cause(user_id="op", project_id="", through="test", request_id="r")
    op: Any = SimpleNamespace(course=SimpleNamespace(problem=before))
    step: Any = SimpleNamespace(name="plug")
    problem = _problem(op, step, Intervention("abandon", cause, "gone"))
    assert (problem.message, problem.code, problem.step) == (text, ABANDONED, "plug")


FAR = NOW + LONGEST_PAUSE + 10.0  # the clock was set back: nothing is put off for so long
STEPS = {  # state, not_before, open, host
    "due": ("ready", 0.0, 1, "host1"),
    "due now": ("ready", NOW - 1.0, 1, "host1"),
    "put off": ("ready", NOW + 30.0, 1, "host1"),
    "put off by another clock": ("ready", FAR, 1, "host1"),
    "taken": ("taken", NOW + 30.0, 1, "host1"),
    "ended": ("taken", 0.0, 0, "host1"),
    "another's": ("taken", 0.0, 1, "host2"),
    "of control": ("ready", 0.0, 1, ""),
    "of control, taken": ("taken", 0.0, 1, ""),
    "of control, ended": ("ready", 0.0, 0, ""),
    "of control, put off": ("ready", NOW + 30.0, 1, ""),
    "of control, put off by another clock": ("ready", FAR, 1, ""),
}


def test_which_steps_are_looked_for(tmp_path: Path) -> None:
    """A host is given what it should be doing and is not: what is due, and what it has taken and lost."""

    async def body(tx: Tx) -> None:
        for number, (name, (state, due, is_open, host)) in enumerate(STEPS.items()):
            of = {"operation_id": name, "state": state, "not_before": due, "open": is_open, "host": host}
            await rows.put(tx, journal.steps, **{**STEP, **of, "created_at": NOW - number})
        store = store_of(tx)
        due_here = ["of control, put off by another clock", "of control"]
        assert await take.ready_operations(store) == due_here, "the oldest first"
        assert await take.hosts_with_work(store) == {"host1", "host2"}
        beat = {"host": "host1", "session": "s", "epoch": 1}
        given = ["taken", "put off by another clock", "due now", "due"]
        assert await take.open_for_host(tx, Beat(**beat)) == [(name, 2) for name in given]
        has = ["taken/2", "due/1", "put off/2"]
        assert await take.open_for_host(tx, Beat(**beat, has=has)) == [(name, 2) for name in given if name != "taken"]

    play(tmp_path, body)


class Taken:
    """What a host of that name gets of the step of an operation, by these records."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.devices, self.is_guarded = path, list[Any](), False
        monkeypatch.setattr(take, "with_devices", self._with_devices)

    async def _with_devices(self, world: Any, order: Any, host: str, **named: bool) -> Any:
        self.devices.append((host, named))
        return order

    async def _guard(self, tx: Tx) -> None:
        if self.is_guarded:
            raise Superseded("another agent has registered")

    def by(self, host: str = "host1", ordinal: int = 2, *, op: Any = None, step: Any = None, server: Any = None) -> Any:
        orders: list[Any] = []

        async def body(tx: Tx) -> None:
            await rows.put(tx, journal.operations, **{**OPERATION, **(op or {})})
            await rows.put(tx, journal.operations, **{**OPERATION, "id": "before", "kind": "rebuild"})
            await rows.put(tx, cell.servers, **{**SERVER, **(server or {})})
            of_host = {"name": "stop_instance", "host": "host1", "copy": 1, "not_before": 0.0}
            await rows.put(tx, journal.steps, **{**STEP, **of_host, **(step or {})})
            beat = Beat(host=host, session="session", epoch=1, filters=True)
            store, engine = store_of(tx), engine_of(tx)
            engine.seal = None  # nothing is sealed here
            orders.append(await take.take_for_host(engine, store, "o", ordinal, beat, self._guard))
            orders.extend(await rows.fetch_all(tx, journal.steps))
            orders.append(await rows.fetch(tx, journal.operations, id="o"))

        play(self.path, body)
        order, self.step, self.operation = orders
        return order


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(tmp_path, monkeypatch)


@pytest.mark.parametrize("network_info", [None, "[]", '[{"port": "p"}]'])
def test_a_host_takes_its_step(taken: Taken, network_info: str | None) -> None:
    """With what its guest needs of other databases."""
    order = taken.by(op={"state": "waiting", "waiting_for": "host1"}, server={"network_info": network_info})
    assert (order.operation, order.ordinal, order.name) == ("o", 2, "stop_instance")
    assert (taken.step["state"], taken.step["worker"]) == ("taken", "session")
    assert taken.step["taken_at"] == pytest.approx(NOW, abs=5.0)
    assert (taken.operation["state"], taken.operation["waiting_for"], taken.operation["committed"]) == (
        "running",
        None,
        0,
    )
    has_ports = network_info not in (None, "[]")
    assert taken.devices == [("host1", {"has_ports": has_ports, "filters": True})]


def test_a_host_takes_a_step_of_a_server_that_is_gone(taken: Taken) -> None:
    assert taken.by(server={"id": "another"}).name == "stop_instance"
    assert taken.devices == [("host1", {"has_ports": False, "filters": True})]


@pytest.mark.parametrize(
    "other",
    [
        {"host": "host2"},
        {"ordinal": 3},
        {"op": {"ordinal": 3}},
        {"op": {"state": "failed", "live": 0}},
        {"op": {"id": "another"}},
        {"step": {"open": 0}},
        {"step": {"host": "host2"}},
        {"step": {"ordinal": 1}},
    ],
    ids=str,
)
def test_a_host_takes_no_other_step(taken: Taken, other: Any) -> None:
    assert taken.by(**other) is None
    assert (taken.step["state"], taken.step["worker"], taken.devices) == ("ready", None, [])


def test_an_agent_that_another_one_followed_takes_nothing(taken: Taken) -> None:
    taken.is_guarded = True
    assert taken.by() is None
    assert taken.step["state"] == "ready"


def test_a_host_without_permission_takes_no_step_that_starts_a_guest(taken: Taken) -> None:
    with pytest.raises(RuntimeError, match="host1 has no permission to run copy 1 of s"):
        taken.by(op={"kind": "start"}, step={"name": "start_instance"}, server={"runner_host": "host2"})


def test_a_host_takes_a_step_of_the_operation_that_is_undone(taken: Taken) -> None:
    order = taken.by(op={"kind": "delete"}, step={"name": "stop_old_copy", "way": "undo", "heir_of": "before"})
    assert (order.kind, order.name, order.way, taken.operation["state"]) == (
        "rebuild",
        "stop_old_copy",
        "undo",
        "undoing",
    )


async def nothing(ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("no_return", "way", "was", "committed"),
    [
        (False, "do", False, False),
        (True, "do", False, True),
        (True, "undo", False, False),
        (False, "do", True, True),
        (True, "undo", True, True),
    ],
)
def test_the_point_of_no_return_is_passed_when_its_step_is_taken(
    tmp_path: Path, no_return: bool, way: str, was: bool, committed: bool
) -> None:
    """Law 8: from then on no cancel turns it back."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, journal.operations, **OPERATION)
        await rows.put(tx, journal.steps, **{**STEP, "way": way})
        op, step = operation(), Step("plan", nothing, CONTROL, no_return=no_return)
        op.committed = was
        row = await rows.fetch(tx, journal.steps, operation_id="o", ordinal=2)
        assert row is not None
        await take._mark_taken(tx, op, step, row, "me")
        stored = await rows.fetch(tx, journal.operations, id="o")
        assert stored is not None and bool(stored["committed"]) is committed is op.committed

    play(tmp_path, body)


def test_a_step_that_ended_meanwhile_is_not_taken(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, journal.operations, **OPERATION)
        await rows.put(tx, journal.steps, **{**STEP, "open": 0})
        row = await rows.fetch(tx, journal.steps, operation_id="o", ordinal=2)
        assert row is not None
        with pytest.raises(Superseded, match="step 2 has ended"):
            await take._mark_taken(tx, operation(), REGISTRY["stop"].steps[0], row, "me")

    play(tmp_path, body)
