"""What the journal keeps of an operation and of its steps: times, results, and nothing that is sealed once it ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select

from kilonova.domain.errors import Superseded
from kilonova.engine import journal as log
from kilonova.engine import records
from kilonova.engine.course import Course, Go, Problem
from kilonova.engine.journal import LONGEST_PAUSE, Op
from kilonova.engine.model import CONTROL, Step, Target
from kilonova.measures import operations_of
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.engine.desk import Desk, work
from tests.engine.rows_of_one import OPERATION, operation
from tests.support.small_cloud import SmallCloud, put

Run = Callable[[Callable[[Tx], Awaitable[Any]]], Any]
PLAN: Any = Step("plan", work, on=CONTROL)
DUE_NOW = Sql(select(steps.c.operation_id).where(log.DUE))
SEALED_PARAMS = {"user_data": "sealed", "image": "i", "details": {"personality": ["sealed"], "key": "k"}}


@pytest.fixture
def run(small_cloud: SmallCloud) -> Run:
    """Runs a transaction of cell1, where the operation `o` is."""

    def runs(body: Callable[[Tx], Awaitable[Any]]) -> Any:
        async def story() -> Any:
            engine = small_cloud.engine()
            await put(engine, "cell1", operations, **OPERATION)
            return await engine.world.db.cell("cell1").write(body)

        return small_cloud.run(story)

    return runs


# -- an ended operation ---------------------------------------------------------------------------------------------


def ended(superseded_by: str | None = None, **documents: Any) -> Op:
    op = operation(state="superseded" if superseded_by else "done", superseded_by=superseded_by)
    op.stored_params, op.stored_facts = (json.dumps(documents.get(name, {})) for name in ("params", "facts"))
    return op


def columns(op: Op, *, is_last: bool = False) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in log.stripped(op, is_last=is_last).items()}


def test_an_operation_that_ended_keeps_nothing_that_was_sealed() -> None:
    """Law 13: neither at the top nor further down, in parameters and facts."""
    facts = {"spec": [{"user_data": "sealed", "name": "n"}], "details": {"personality": ["sealed"]}, "found": 3}
    assert columns(ended(params=SEALED_PARAMS, facts=facts)) == {
        "params": {"image": "i", "details": {"key": "k"}},
        "facts": {"spec": [{"name": "n"}], "details": {}, "found": 3},
    }


def test_documents_without_anything_sealed_are_not_written_again() -> None:
    assert columns(ended(params={"image": "i"}, facts={"found": 3})) == {}


@pytest.mark.parametrize(
    ("heir", "is_last", "keeps"), [(None, False, False), ("p", False, True), ("p", True, False), (None, True, False)]
)
def test_an_heir_may_have_to_put_back_what_was_there_before(heir: str | None, is_last: bool, keeps: bool) -> None:
    before = {"before": {"user_data": "sealed", "name": "n"}, "after": {"user_data": "sealed"}}
    kept = {"user_data": "sealed", "name": "n"} if keeps else {"name": "n"}
    assert columns(ended(heir, facts=before), is_last=is_last) == {"facts": {"before": kept, "after": {}}}


@pytest.mark.parametrize("state", ["done", "superseded", "running"])
def test_the_row_of_an_operation_says_how_it_stands(run: Run, state: str) -> None:
    async def body(tx: Tx) -> Any:
        op = operation(state=state, superseded_by="heir" if state == "superseded" else None)
        op.stored_params, op.stored_facts = json.dumps(SEALED_PARAMS), '{"found": 3}'
        op.course = Course(at="plan", problem=Problem(code="x", message="it broke"))
        op.ordinal, op.turn, op.destination, op.waiting_for = 3, 6, "host2", None if state != "running" else "an answer"
        await log.save(tx, op, "running", 2)
        return await rows.fetch(tx, operations, id="o")

    row = run(body)
    is_live = state == "running"
    assert (row["state"], row["ordinal"], row["turn"], row["destination"]) == (state, 3, 6, "host2")
    assert (row["live"], row["ended_at"] is None) == (int(is_live), is_live)
    assert row["superseded_by"] == ("heir" if state == "superseded" else None)
    assert "it broke" in row["error"] and json.loads(row["course"])["at"] == "plan"
    assert json.loads(row["facts"]) == {"found": 3}
    assert row["params"] == OPERATION["params"] if is_live else "sealed" not in row["params"]
    assert row["waiting_for"] == ("an answer" if is_live else None)


def test_a_step_that_begins_changes_the_standing_alone(run: Run) -> None:
    async def body(tx: Tx) -> Any:
        op = operation(state="running")
        op.stored_facts, op.turn, op.committed = '{"found": 3}', 9, True
        await log.save_taken(tx, op, "running")
        return await rows.fetch(tx, operations, id="o")

    row = run(body)
    assert (row["committed"], row["turn"], row["facts"]) == (1, OPERATION["turn"], OPERATION["facts"])


def test_what_ended_before_stays_as_it_ended(run: Run) -> None:
    async def body(tx: Tx) -> None:
        await rows.change(tx, operations, {"live": 0}, id="o")
        with pytest.raises(Superseded, match="operation o moved on from ordinal 2"):
            await log.save(tx, operation(state="running"), "running", 2)

    run(body)


@pytest.mark.parametrize(("created_at", "seconds"), [(1000.0, "2.346"), (0.0, "None"), (2000.0, "0.0")])
def test_an_end_is_logged_and_measured(caplog: pytest.LogCaptureFixture, created_at: float, seconds: str) -> None:
    """An operation whose beginning this worker does not know has no duration."""

    def measured() -> float:
        samples = [one for metric in operations_of("stop", "done").collect() for one in metric.samples]
        return sum(one.value for one in samples if one.name.endswith("_count"))

    before = measured()
    with caplog.at_level(logging.INFO, logger=log.__name__):
        log.report_end(operation(state="done", created_at=created_at), 1002.3456)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"state=done seconds={seconds} " in line and line.endswith("error=None")
    assert measured() - before == (seconds != "None")


# -- whether a row is as it was left --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        ({}, True),
        ({"ordinal": 3}, False),
        ({"turn": 6}, False),
        ({"state": "waiting"}, False),
        ({"committed": 1}, False),
        ({"live": 0}, False),
        ({"id": "another"}, False),
    ],
)
def test_an_operation_is_as_its_last_writer_left_it(run: Run, changed: dict[str, Any], is_same: bool) -> None:
    async def body(tx: Tx) -> bool:
        if changed:
            await rows.change(tx, operations, changed, id="o")
        return await log.is_unchanged(tx, operation())

    assert run(body) is is_same


def test_documents_are_decoded_once_and_stored_as_they_were_unless_changed() -> None:
    op, stop = operation(facts="{}", params="{}"), REGISTRY["stop"]
    assert op.facts_document == "{}" and op.params(stop) is op.params(stop)
    assert op.facts(stop) is op.facts(stop)
    op.facts(stop).decision = {"hosts": []}
    assert json.loads(op.facts_document) == {"decision": {"hosts": []}}


# -- steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worker", "result", "state", "open_"),
    [(None, None, "ready", 1), ("me", None, "taken", 1), ("me", {"found": 3}, "done", 0), ("me", {}, "done", 0)],
)
def test_a_step_is_ready_taken_or_done(run: Run, worker: str | None, result: Any, state: str, open_: int) -> None:
    async def body(tx: Tx) -> Any:
        go = Go(step="plan", way="undo", target=Target("host1", 4), attempt=2, owner="before")
        await log.add_step(tx, operation(), PLAN, go, worker, result)
        return await log.fetch_step(tx, "o", 2)

    row = run(body)
    assert (row["state"], row["open"], row["worker"], row["not_before"]) == (state, open_, worker, 0.0)
    assert (row["taken_at"] is None, row["ended_at"] is None) == (worker is None, state != "done")
    assert row["result"] == (None if result is None else json.dumps(result, separators=(",", ":")))
    go = log.go_from(row)
    assert (go.step, go.way, go.target, go.attempt, go.owner) == ("plan", "undo", Target("host1", 4), 2, "before")
    assert go.delay == 0.0 and not go.waits


def test_a_step_of_the_operation_itself_has_no_other_owner(run: Run) -> None:
    async def body(tx: Tx) -> Any:
        await log.add_step(tx, operation(), PLAN, Go(step="plan", way="do", target=Target("")), None)
        return await log.fetch_step(tx, "o", 2)

    row = run(body)
    assert row["heir_of"] is None and log.go_from(row).owner == ""


@pytest.mark.parametrize(("seconds", "ahead"), [(0.0, None), (5.0, 5.0), (60.0, 60.0), (61.0, LONGEST_PAUSE)])
def test_a_pause_is_no_longer_than_the_longest(run: Run, seconds: float, ahead: float | None) -> None:
    """A step that is due now is due at 0, by no clock (law 16)."""

    async def body(tx: Tx) -> float:
        due = await log.due_in(tx, seconds)
        return due if ahead is None else due - await tx.now()

    assert run(body) == (0.0 if ahead is None else ahead)


@pytest.mark.parametrize(
    ("ahead", "due"),
    [(None, True), (-1.0, True), (0.0, True), (1.0, False), (LONGEST_PAUSE, False), (LONGEST_PAUSE + 1.0, True)],
)
def test_a_step_is_due_when_its_pause_is_over_or_cannot_be(run: Run, ahead: float | None, due: bool) -> None:
    """By the same rule for a row that was read and for the statements that look for work."""

    async def body(tx: Tx) -> tuple[bool, bool]:
        await log.add_step(tx, operation(), PLAN, Go(step="plan", way="do", target=Target("")), None)
        before = 0.0 if ahead is None else await tx.now() + ahead
        await rows.change(tx, steps, {"not_before": before}, operation_id="o")
        row = await log.fetch_step(tx, "o", 2)
        assert row is not None
        found = await tx.all(DUE_NOW)
        return await log.is_due(tx, row), bool(found)

    assert run(body) == (due, due)


@pytest.mark.parametrize(("result", "error"), [(None, None), ({"found": 3}, None), (None, {"code": "x"})])
def test_the_end_of_a_step_is_recorded(run: Run, result: Any, error: Any) -> None:
    async def body(tx: Tx) -> Any:
        await log.add_step(tx, operation(), PLAN, Go(step="plan", way="do", target=Target("")), "me")
        await log.end_step(tx, "o", 2, "failed" if error else "done", result, error)
        return await log.fetch_step(tx, "o", 2)

    row = run(body)
    assert (row["state"], row["open"], row["ended_at"] is None) == ("failed" if error else "done", 0, False)
    assert [row[name] and json.loads(row[name]) for name in ("result", "error")] == [result, error]


# -- what the API shows ---------------------------------------------------------------------------------------------


def test_the_events_of_a_step_have_an_order_and_a_repeated_one_keeps_its_start(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        desk = await Desk.made(small_cloud, REGISTRY)
        op = operation()

        async def begin(tx: Tx, now: float) -> None:
            await records.events_started(tx, op, ("one", "two"), "host1", now)

        await desk.journal.write(lambda tx: begin(tx, 5.0))
        await desk.journal.write(
            lambda tx: records.events_finished(tx, op, ("one",), Problem(code="x", message="no"), 6.0)
        )
        events = {event["event"]: event for event in await desk.all(cell.action_events)}
        assert [events[name]["position"] for name in ("one", "two")] == [20, 21]
        assert (events["one"]["result"], events["one"]["details"], events["one"]["finished_at"]) == ("Error", "no", 6.0)
        assert events["two"]["finished_at"] is None
        op.ordinal = 3
        await desk.journal.write(lambda tx: begin(tx, 7.0))
        again = {event["event"]: event for event in await desk.all(cell.action_events)}["one"]
        assert (again["started_at"], again["finished_at"], again["result"], again["details"]) == (5.0, None, None, None)
        await desk.journal.write(lambda tx: records.interrupted(tx, op, "why", 8.0))
        assert {event["details"] for event in await desk.all(cell.action_events)} == {"why"}

    small_cloud.run(story)


@pytest.mark.parametrize("is_open", [True, False])
def test_an_action_fails_if_it_was_interrupted_in_the_middle_of_something(
    small_cloud: SmallCloud, is_open: bool
) -> None:
    async def story() -> None:
        desk = await Desk.made(small_cloud, REGISTRY)
        op = operation()
        await desk.journal.write(lambda tx: records.action_started(tx, op, "stop", 5.0))
        await desk.journal.write(lambda tx: records.events_started(tx, op, ("one",), "", 5.0))
        if not is_open:
            await desk.journal.write(lambda tx: records.events_finished(tx, op, ("one",), None, 6.0))
        await desk.journal.write(lambda tx: records.interrupted(tx, op, "why", 7.0))
        (action,), (event,) = await desk.all(cell.actions), await desk.all(cell.action_events)
        assert action["message"] == ("Error" if is_open else None) and event["host"] is None
        assert event["result"] == ("Error" if is_open else "Success")

    small_cloud.run(story)


@pytest.mark.parametrize(("step", "details"), [("plan", "plan: it broke"), ("", "it broke")])
def test_a_fault_has_a_short_text_for_the_owner_and_the_reason_for_the_administrator(
    small_cloud: SmallCloud, step: str, details: str
) -> None:
    async def story() -> None:
        desk = await Desk.made(small_cloud, REGISTRY)
        problem = Problem(code="x", step=step, message="it broke")
        await desk.journal.write(lambda tx: records.fault(tx, operation(), "a" * 300, problem, 5.0))
        (fault,) = await desk.all(cell.faults)
        assert (fault["message"], fault["details"], fault["code"]) == ("a" * records.FAULT_LENGTH, details, 500)

    small_cloud.run(story)
