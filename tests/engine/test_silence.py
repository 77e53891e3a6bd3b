"""What silence may lead to, for every step there is (law 3): a pure rule, tried with everything."""

import asyncio
from types import SimpleNamespace

import pytest

from kilonova.domain.errors import Superseded
from kilonova.domain.host import HostState
from kilonova.domain.operation import BACK
from kilonova.domain.server import to_json
from kilonova.engine import silence
from kilonova.engine.conclude import Outcome
from kilonova.engine.course import ENDING, Course, Problem
from kilonova.engine.model import DEBT, FAIL, WAIT, Step
from kilonova.engine.silence import on_silence
from kilonova.operations import REGISTRY
from kilonova.operations.facts import HERE
from kilonova.schema.tables.cell import hosts
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from tests.engine.rows_of_one import NOW, OPERATION, STEP, engine_of, play, store_of
from tests.support.distinct import distinct_settings
from tests.support.neighbours import Watched, zeros

STEPS = [
    pytest.param(step, id=f"{kind} {step.name}")
    for kind, operation in REGISTRY.items()
    for step in operation.course
    if step.on.name != "control"
]
SILENT = HostState("host1", "down", "host1 has been silent for 61 s while others were heard")
UNKNOWN = HostState("host1", "unknown", "nobody has listened for long enough")
DECLARED = HostState("host1", "down", "host1 was declared down", declared=True)


@pytest.mark.parametrize("step", STEPS)
def test_silence_alone_ends_nothing_that_may_have_left_a_guest_running(step):
    if step.starts_guest:
        assert {on_silence(step, way, SILENT, False) for way in ("do", "undo")} == {WAIT}
    if step.undo_starts_guest:
        assert on_silence(step, "do", SILENT, False) == WAIT, "it stops a guest that may run on"


@pytest.mark.parametrize("step", STEPS)
def test_silence_leaves_what_starts_no_guest_to_the_host_or_says_so(step):
    assert on_silence(step, "do", SILENT, False) == step.when_silent
    assert on_silence(step, "undo", SILENT, False) == (WAIT if step.starts_guest else DEBT)


@pytest.mark.parametrize("step", STEPS)
def test_what_is_not_known_ends_nothing(step):
    assert {on_silence(step, way, UNKNOWN, False) for way in ("do", "undo")} == {WAIT}


@pytest.mark.parametrize("step", STEPS)
def test_an_operators_word_ends_every_wait(step):
    assert on_silence(step, "undo", DECLARED, True) == DEBT
    assert on_silence(step, "do", DECLARED, True) in (DEBT, FAIL)


def test_only_steps_that_lie_with_a_host_are_looked_at(tmp_path, monkeypatch):
    """Each as a step of its own operation, or of the one whose undo it is."""
    kinds = ("stop", "migrate", "reboot")
    looked = []

    async def look(engine, journal, row, step, state, now):
        looked.append((row["operation_id"], row["kind"], step.name))
        assert (state.name, state.status, state.declared) == ("host1", "down", True)
        assert now == pytest.approx(NOW, abs=5.0)

    async def put(tx, operation, name, **values):
        step = {**STEP, "operation_id": operation, "name": name, "host": "host1", **values}
        await rows.put(tx, steps, **step)

    async def body(tx):
        for kind in kinds:
            await rows.put(tx, operations, **{**OPERATION, "id": kind, "kind": kind})
        for ordinal, other in enumerate(({"open": 0}, {"host": ""})):
            await put(tx, "migrate", "claim", ordinal=ordinal, **other)
        await put(tx, "migrate", "resize_instance")
        await put(tx, "reboot", "resize_instance", heir_of="migrate")
        await put(tx, "stop", "stop_instance")
        text = {"name": "host1", "id": "i", "provider_id": "p", "identity": "x"}
        await rows.put(tx, hosts, **zeros(hosts, **text, forced_down=1))
        await silence.watch_hosts(engine_of(tx), store_of(tx))

    monkeypatch.setattr(silence, "_look", look)
    play(tmp_path, body)
    assert looked == [
        ("migrate", "migrate", "resize_instance"),
        ("reboot", "reboot", "resize_instance"),
        ("stop", "stop", "stop_instance"),
    ]


UP, LATE = HostState("host1", "up", "it answers"), HostState("host1", "up", "it answers", silent=17.0)
ROW = {"operation_id": "o", "ordinal": 2, "host": "host1", "way": "do", "state": "taken", "taken_at": NOW - 10.0}
ROW |= {"facts": "{}", "operation_state": "running", "waiting_for": None}
TELL = "To go on without it, fence it or declare it down: openstack compute service set --down host1 nova-compute"


async def nothing(ctx):
    return None


def a_step(**values):
    return Step("copy", nothing, HERE, **values)


ENGINE = SimpleNamespace(settings=distinct_settings(), flush_seconds=1.0)


class Look:
    """What a look at one step leads to."""

    def __init__(self, monkeypatch):
        self.done = []
        for name in ("conclude", "pass_on", "set_waiting", "_taken_now"):
            monkeypatch.setattr(silence, name, self.noting(name))

    def noting(self, name):
        async def note(engine, journal, *given, **named):
            self.done.append((name, *given, *named.values()))
            return "next"

        return note

    def at(self, seen, step, **row):
        asyncio.run(silence._look(ENGINE, "journal", {**ROW, **row}, step, seen, NOW))
        return self.done


@pytest.fixture
def look(monkeypatch):
    return Look(monkeypatch)


def ended(outcome):
    return [("conclude", "o", 2, outcome), ("pass_on", "next")]


def failed(text, code="host_down"):
    return Outcome(problem=Problem(code=code, message=text, step="copy", elsewhere=True, final=True))


@pytest.mark.parametrize("state", [SILENT, UNKNOWN])
def test_a_step_that_may_have_left_a_guest_running_waits_for_its_host(look, state):
    text = f"host1 to answer about copy ({state.sentence}). {TELL}"
    assert look.at(state, a_step(starts_guest=True)) == [("set_waiting", "o", 2, text)]


def test_silence_fails_a_step_that_leaves_nothing_running(look):
    assert look.at(SILENT, a_step(when_silent=FAIL)) == ended(failed(f"copy on host1: {SILENT.sentence}"))


def test_what_only_cleans_up_is_left_to_the_host(look):
    assert look.at(SILENT, a_step(when_silent=DEBT)) == ended(Outcome(waived=SILENT.sentence))


@pytest.mark.parametrize("state", [DECLARED, HostState("host1", "returning", "it returns", declared=True)])
def test_a_host_that_was_declared_down_is_not_waited_for(look, state):
    assert look.at(state, a_step(starts_guest=True)) == ended(failed(f"copy on host1: {state.sentence}"))


@pytest.mark.parametrize(("declared", "is_dead"), [(["host1"], True), (["host2"], False), ([], False)])
def test_a_host_may_be_declared_dead_for_one_operation(look, declared, is_dead):
    """Whatever else is said of it, the operation goes on without it."""
    done = look.at(UP, a_step(), facts=to_json({"declared": declared}))
    assert done == (ended(failed("copy on host1: it answers")) if is_dead else [])


def test_a_step_that_was_ended_meanwhile_is_left(look, monkeypatch):
    async def gone(*_):
        raise Superseded("it has moved on")

    monkeypatch.setattr(silence, "conclude", gone)
    assert look.at(SILENT, a_step(when_silent=FAIL)) == []


OVERDUE = {"taken_at": NOW - 60.1}


@pytest.mark.parametrize(
    ("values", "row", "is_failed"),
    [
        ({}, OVERDUE, True),
        ({}, {"taken_at": NOW - 60.0}, False),
        ({"deadline": 61.0}, OVERDUE, False),
        ({}, {**OVERDUE, "state": "ready"}, False),
        ({}, {**OVERDUE, "way": "undo"}, False),
        ({"starts_guest": True}, OVERDUE, False),
    ],
    ids=str,
)
def test_a_host_has_so_long_for_a_step_that_leaves_nothing_running(look, values, row, is_failed):
    problem = failed("copy on host1 did not end within 60 s", "deadline")
    assert look.at(UP, a_step(**values), **row) == (ended(problem) if is_failed else [])


def test_a_host_that_is_late_with_a_heartbeat_is_named_and_nothing_else_changes(look):
    text = "host1 to answer about copy; last heard 17 s ago"
    assert look.at(LATE, a_step()) == [("set_waiting", "o", 2, text, True)]


def test_a_heartbeat_is_late_after_one_and_a_half_intervals(look):
    """And the time in which it is written."""
    longest = 1.5 * ENGINE.settings.default.report_interval + ENGINE.flush_seconds
    assert look.at(HostState("host1", "up", "", silent=longest), a_step()) == []
    assert look.at(HostState("host1", "up", "", silent=longest + 0.1), a_step()) != []


@pytest.mark.parametrize(("was", "only_say"), [("waiting", False), ("running", True), ("undoing", True)])
def test_a_host_that_answers_again_is_not_waited_for_any_more(look, was, only_say):
    done = look.at(UP, a_step(), waiting_for="host1 to answer", operation_state=was)
    assert done == [("set_waiting", "o", 2, None, only_say)]


@pytest.mark.parametrize(("taken_at", "is_ahead"), [(NOW + 1.0, True), (NOW, False)])
def test_a_clock_that_was_set_back_begins_the_deadline_again(look, taken_at, is_ahead):
    done = look.at(UP, a_step(), taken_at=taken_at)
    assert [name for name, *_ in done] == ["_taken_now"] * is_ahead


def test_the_deadline_begins_again_for_that_step_only(tmp_path):
    taken = {**STEP, "state": "taken", "host": "host1", "taken_at": NOW + 50.0}
    kept = ({"operation_id": "0"}, {"ordinal": 1}, {"ordinal": 3, "open": 0}, {"ordinal": 4, "taken_at": NOW + 51.0})

    async def body(tx):
        for other in (*kept, {}):
            await rows.put(tx, steps, **{**taken, **other})
        before = await Watched.since_now(tx, steps)
        for ordinal in (2, 3, 4):
            await silence._taken_now(engine_of(tx), store_of(tx), {**taken, "ordinal": ordinal})
        assert [(row["operation_id"], row["ordinal"]) for row in await before.changed(tx)] == [("o", 2)]
        row = await rows.fetch(tx, steps, operation_id="o", ordinal=2)
        assert row["taken_at"] == pytest.approx(NOW, abs=5.0)

    play(tmp_path, body)


@pytest.mark.parametrize("name", ["control", "cell1"])
def test_a_step_of_a_host_that_is_not_recorded_waits(tmp_path, monkeypatch, name):
    """Nothing is known of it, so it may be alive. Control has no hosts."""
    said = []

    async def wait(engine, journal, operation, ordinal, text):
        said.append((operation, ordinal, text.partition(". To go")[0]))

    async def body(tx):
        await rows.put(tx, operations, **OPERATION)
        await rows.put(tx, steps, **{**STEP, "name": "stop_instance", "host": "host1", "state": "taken"})
        await silence.watch_hosts(engine_of(tx), store_of(tx, name))

    monkeypatch.setattr(silence, "set_waiting", wait)
    play(tmp_path, body, name)
    text = "host1 to answer about stop_instance (host1 is not known here)"
    assert said == ([("o", 2, text)] if name == "cell1" else [])


BACK_AGAIN, ENDS = to_json(Course(mode=BACK)), to_json(Course(mode=ENDING))
STUCK = to_json(Course(mode=BACK, stuck="it is refused"))


@pytest.mark.parametrize(
    ("was", "text", "only_say", "state", "waiting_for"),
    [
        ({}, "host1", False, "waiting", "host1"),
        ({}, "host1", True, "running", "host1"),
        ({"state": "waiting", "waiting_for": "host1"}, None, False, "running", None),
        ({"state": "waiting", "waiting_for": "host1", "course": BACK_AGAIN}, None, False, "undoing", None),
        ({"state": "waiting", "waiting_for": "host1", "course": ENDS}, None, False, "running", None),
        ({"state": "waiting", "waiting_for": "host1", "course": STUCK}, None, False, "waiting", "it is refused"),
        ({"waiting_for": "host1"}, None, True, "running", None),
        ({"state": "running", "waiting_for": "host1"}, "host1", False, "running", "host1"),
        ({"ordinal": 3}, "host1", False, "running", None),
        ({"state": "failed", "live": 0}, "host1", False, "failed", None),
        ({"id": "another"}, "host1", False, "running", None),
    ],
    ids=str,
)
def test_an_operation_says_what_it_waits_for_as_long_as_it_does(tmp_path, was, text, only_say, state, waiting_for):
    async def body(tx):
        await rows.put(tx, operations, **{**OPERATION, **was})
        await silence.set_waiting(engine_of(tx), store_of(tx), "o", 2, text, only_say=only_say)
        (row,) = await rows.fetch_all(tx, operations)
        assert (row["state"], row["waiting_for"]) == (state, waiting_for)

    play(tmp_path, body)
