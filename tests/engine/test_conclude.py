"""Finishing a step: what is written with its result, what is taken in the same transaction, and who is too late."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Failed, Superseded
from kilonova.domain.messages import StepResult
from kilonova.domain.server import ERROR
from kilonova.engine import conclude as concluding
from kilonova.engine.conclude import Next, Outcome, cancel
from kilonova.engine.course import ABANDONED, Problem
from kilonova.engine.journal import load
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations, secrets, steps
from kilonova.store import rows
from tests.engine.desk import Desk
from tests.engine.moving import ELSEWHERE, KNOWN, WRONG, at_host, goes_on, stays, stops
from tests.engine.moving import play as play


def test_the_end_of_a_step_begins_the_next_one(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("moving")
        following = await desk.end(begun, Outcome(changed_facts={"found": "it"}))
        name = begun.op.id
        assert (following.host, following.is_mine, following.ended, following.order) == ("host1", False, None, None)
        assert await desk.states(name) == [("plan", "do", "done"), ("stop", "do", "ready")]
        (plan,) = await desk.all(steps, operation_id=name, name="plan")
        assert plan["result"] == '{"found":"it"}'
        op, server = await desk.operation(name), await desk.server()
        assert (op["state"], op["ordinal"], op["committed"], op["waiting_for"]) == ("running", 2, 0, None)
        assert "it" in op["facts"]
        assert (server["task_state"], server["operation_id"]) == ("stopping", name)
        events = {one["event"]: (one["result"], one["host"]) for one in await desk.all(cell.action_events)}
        assert events == {"compute_plan": ("Success", None), "compute_stop": (None, "host1")}

    play(story)


def test_what_a_host_found_is_recorded_with_its_step(play: Any) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        await desk.end(following, Outcome(result=StepResult(disk="kept")), session="now")
        assert (await desk.server())["vm_state"] == "stopped"
        (step,) = await desk.all(steps, operation_id=following.op.id, name="stop")
        assert (step["state"], step["open"]) == ("done", 0) and "kept" in step["result"]

    play(story)


@pytest.mark.parametrize("late", ["again", "ended", "another session", "not open", "purged"])
def test_a_late_result_is_refused_and_changes_nothing(play: Any, late: str) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        name = following.op.id
        if late == "again":
            await desk.end(following, session="now")
        elif late == "ended":
            await desk.change(operations, {"live": 0, "state": "failed"}, id=name)
        elif late == "purged":
            await desk.journal.write(lambda tx: rows.remove(tx, steps, operation_id=name, ordinal=2))
        elif late == "not open":
            await desk.change(steps, {"open": 0, "state": "dropped"}, operation_id=name, ordinal=2)
        before = await desk.operation(name), await desk.states(name), await desk.server()
        with pytest.raises(Superseded):
            await desk.end(following, session="before" if late == "another session" else "now")
        assert (await desk.operation(name), await desk.states(name), await desk.server()) == before

    play(story)


@pytest.mark.parametrize(
    ("guard", "session", "is_taken"), [(goes_on, "now", True), (stays, "now", False), (goes_on, None, False)]
)
def test_a_host_gets_its_next_step_with_the_answer_if_it_goes_on(
    play: Any, guard: Any, session: str | None, is_taken: bool
) -> None:
    async def story(desk: Desk) -> None:
        name = (await desk.ask("on_host_first")).operation_id
        assert await desk.take(name, 1) is not None
        op = await desk.journal.read(lambda tx: load(tx, name))
        following = await desk.end(Next(op), guard=guard, session=session)
        assert (following.order is not None) is is_taken
        step = await desk.step(name)
        assert (step["state"], step["worker"]) == (("taken", "now") if is_taken else ("ready", None))

    play(story)


@pytest.mark.parametrize(("runner", "is_taken"), [(("host1", 3), True), (("host1", 2), False), (("host2", 3), False)])
def test_a_guest_is_started_only_with_permission(play: Any, runner: tuple[str, int], is_taken: bool) -> None:
    """Law 3."""

    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        await desk.change(cell.servers, {"runner_host": runner[0], "runner_copy": runner[1]}, id="s")
        assert ((await desk.end(following, session="now", guard=goes_on)).order is not None) is is_taken

    play(story)


def test_the_next_step_of_another_host_or_after_a_pause_is_only_ready(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = (await desk.ask("on_host_first")).operation_id
        await desk.take(name, 1)
        await desk.change(steps, {"host": "host2"}, operation_id=name)
        op = await desk.journal.read(lambda tx: load(tx, name))
        assert (await desk.end(Next(op), guard=goes_on, session="now")).order is None, "host2 reported"

    play(story)


def test_a_failed_step_of_a_host_is_undone_by_itself_and_what_it_recorded_is_lost(play: Any) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        name = following.op.id
        undo = await desk.end(following, Outcome(problem=WRONG), session="now", guard=goes_on)
        assert await desk.states(name) == [("plan", "do", "done"), ("stop", "do", "failed"), ("stop", "undo", "taken")]
        assert undo.order is not None and undo.order.way == "undo"
        assert (await desk.server())["vm_state"] == "active"
        op = await desk.operation(name)
        assert op["state"] == "undoing" and "stop" in op["error"] and "it broke" in op["error"]
        (event,) = await desk.all(cell.action_events, event="compute_stop")
        assert (event["result"], event["details"]) == ("Error", "it broke")

    play(story)


def test_what_is_undone_is_recorded_and_shown_as_no_event(play: Any) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        await desk.change(cell.servers, {"vm_state": ERROR}, id="s")
        undo = await desk.end(following, Outcome(problem=WRONG), session="now", guard=goes_on)
        await desk.end(undo, session="now")
        assert (await desk.server())["vm_state"] == "active", "record_undo"
        (event,) = await desk.all(cell.action_events, event="compute_stop")
        assert event["result"] == "Error", "as it failed"
        assert await desk.states(following.op.id) == [
            ("plan", "do", "done"),
            ("stop", "do", "failed"),
            ("stop", "undo", "done"),
            ("plan", "undo", "taken"),
        ]

    play(story)


@pytest.mark.parametrize(
    ("kind", "at", "problem", "is_rerouted"),
    [
        ("rerouted", "stop", ELSEWHERE, True),
        ("rerouted", "stop", WRONG, False),
        ("rerouted", "plan", ELSEWHERE, False),
        ("moving", "stop", ELSEWHERE, False),
    ],
)
def test_another_destination_is_tried_in_a_turn_of_its_own(
    play: Any, kind: str, at: str, problem: Problem, is_rerouted: bool
) -> None:
    """Law 4: if the step that failed may do better there."""

    async def story(desk: Desk) -> None:
        began = await (desk.begun(kind) if at == "plan" else at_host(desk, kind))
        name = began.op.id
        following = await desk.end(began, Outcome(problem=problem))
        while following.go is not None and following.go.way == "undo":
            following = await desk.end(following)
        op, server = await desk.operation(name), await desk.server()
        if is_rerouted:
            assert (following.step and following.step.name, op["turn"], server["turn"]) == ("plan", 7, 7)
            assert (await desk.step(name))["turn"] == 7
        else:
            assert (op["state"], op["turn"], server["turn"]) == ("undone", 6, 6)

    play(story)


@pytest.mark.parametrize(
    ("kind", "way", "owes"), [("moving", "do", True), ("debtor", "undo", True), ("moving", "undo", False)]
)
def test_a_step_of_a_host_that_was_declared_down_is_left_to_it(play: Any, kind: str, way: str, owes: bool) -> None:
    """Law 7: it removes the copy when it is back, or learns then what may run there."""

    async def story(desk: Desk) -> None:
        following = await at_host(desk, kind)
        if way == "undo":
            following = await desk.end(following, Outcome(problem=WRONG))
        await desk.end(following, Outcome(waived="host1 was declared down"))
        (row,) = [row for row in await desk.all(steps, way=way) if row["state"] == "waived"]
        assert "declared down" in row["result"]
        debts = await desk.all(cell.debts)
        assert [(debt["host"], debt["copy"], debt["verb"]) for debt in debts] == [("host1", 3, "ensure_absent")] * owes
        (host,) = await desk.all(cell.hosts)
        assert (host["epoch"], host["returning"]) == (2, int(owes))

    play(story)


@pytest.mark.parametrize("worker", ["me", ""])
def test_steps_that_cannot_fail_are_done_in_the_same_transaction(play: Any, worker: str) -> None:
    """By a conductor: the API's engine drives nothing."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("at_once")
        desk.engine.worker = worker
        following = await desk.end(begun)
        done, here = ("done", "taken") if worker else ("ready", "")
        expected = [("plan", "do", "done"), ("look", "do", done)]
        expected += [("note", "do", "done"), ("end", "do", here)] if worker else []
        assert await desk.states(begun.op.id) == expected
        assert ("at once" in (await desk.operation(begun.op.id))["facts"]) is bool(worker)
        if worker:
            assert following.is_mine and (await desk.step(begun.op.id))["ordinal"] == 4
            looks = await desk.all(steps, operation_id=begun.op.id, name="look")
            assert [(look["worker"], look["open"]) for look in looks] == [("me", 0)] and "at once" in looks[0]["result"]

    play(story)


def test_one_of_them_that_fails_is_done_as_any_other_step(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("careless")
        assert (await desk.end(begun)).is_mine
        assert await desk.states(begun.op.id) == [("plan", "do", "done"), ("look", "do", "taken")]

    play(story)


def test_after_a_failure_nothing_is_done_at_once(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("at_once")
        await desk.end(begun, Outcome(problem=WRONG))
        assert await desk.states(begun.op.id) == [("plan", "do", "failed"), ("plan", "undo", "taken")]

    play(story)


@pytest.mark.parametrize("worker", ["me", ""])
def test_the_point_of_no_return_is_passed_when_its_step_is_taken(play: Any, worker: str) -> None:
    """Law 8."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("no_return")
        desk.engine.worker = worker
        await desk.end(begun)
        assert (await desk.operation(begun.op.id))["committed"] == int(bool(worker))

    play(story)


def test_an_operation_that_waits_for_somebody_says_so(play: Any) -> None:
    """Law 17: what was refused for good, and how to end it; until it works."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("no_return")
        give = await desk.end(begun)
        final = Problem(code="x", message="no such device", final=True)
        waiting = await desk.end(give, Outcome(problem=final))
        op = await desk.operation(begun.op.id)
        assert op["state"] == "waiting" and "no such device" in op["waiting_for"]
        assert waiting.go is not None and waiting.go.delay == 60.0
        assert (await desk.step(begun.op.id))["state"] == "ready"
        await desk.end(waiting)
        op = await desk.operation(begun.op.id)
        assert (op["state"], op["waiting_for"]) == ("running", None)

    play(story)


@pytest.mark.parametrize("problem", [None, WRONG, Problem(code="cancelled", message="by alice")])
def test_the_end_frees_the_server_and_says_what_failed(play: Any, problem: Problem | None) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("at_once", secrets={"password": "x"})
        following = await desk.end(begun, Outcome(problem=problem))
        while following.ended is None:
            following = await desk.end(following)
        state = "done" if problem is None else "cancelled" if problem.code == "cancelled" else "undone"
        op, server = await desk.operation(begun.op.id), await desk.server()
        assert following.ended == op["state"] == state and not op["live"] and op["ended_at"]
        assert (server["task_state"], server["operation_id"]) == (None, None)
        assert await desk.all(secrets) == []
        (action,) = await desk.all(cell.actions)
        assert action["message"] == (None if problem is None else "Error")
        faults = [(fault["message"], fault["details"]) for fault in await desk.all(cell.faults)]
        assert faults == ([("The operation failed.", "plan: it broke")] if state == "undone" else [])

    play(story)


def test_nobody_ends_a_step_of_an_operation_that_is_gone(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("moving")
        await desk.journal.write(lambda tx: rows.remove(tx, operations, id=begun.op.id))
        with pytest.raises(Superseded, match="has moved on"):
            await desk.end(begun)

    play(story)


def test_a_row_that_may_not_be_written_fails_the_step(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)

        def refuse(ctx: Any, result: Any) -> None:
            raise Failed("no_room", "host1 is full")

        step = KNOWN["moving"].step("stop")
        object.__setattr__(step, "record", refuse)
        try:
            undo = await desk.end(following, session="now")
        finally:
            object.__setattr__(step, "record", stops)
        assert undo.go is not None and undo.go.way == "undo"
        assert "host1 is full" in (await desk.operation(following.op.id))["error"]

    play(story)


def test_a_cancel_undoes_what_was_begun(play: Any) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk)
        problem = Problem(code="cancelled", message="by alice")

        async def body(tx: Any) -> Next:
            op = await load(tx, following.op.id, lock=True)
            assert op is not None
            return await cancel(desk.engine, tx, desk.journal, op, problem)

        undo = await desk.journal.write(body)
        assert (undo.go and undo.go.way, undo.host) == ("undo", "host1")
        assert await desk.states(following.op.id) == [
            ("plan", "do", "done"),
            ("stop", "do", "dropped"),
            ("stop", "undo", "ready"),
        ]
        (event,) = await desk.all(cell.action_events, event="compute_stop")
        assert (event["result"], event["details"]) == ("Error", "The operation was cancelled.")
        assert (await desk.operation(following.op.id))["state"] == "undoing"

    play(story)


def test_a_conductor_that_knows_its_operation_does_not_read_it_again(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it has changed."""
    reads, really = list[str](), concluding.log.load

    async def counted(tx: Any, operation_id: str, **more: Any) -> Any:
        reads.append(f"{operation_id} locked" if more["lock"] else operation_id)
        return await really(tx, operation_id, **more)

    async def counted_step(tx: Any, operation_id: str, ordinal: int) -> Any:
        reads.append(f"{operation_id} {ordinal}")
        return await really_step(tx, operation_id, ordinal)

    really_step = concluding.log.fetch_step
    monkeypatch.setattr(concluding.log, "load", counted)
    monkeypatch.setattr(concluding.log, "fetch_step", counted_step)

    async def story(desk: Desk) -> None:
        begun = await desk.begun("no_return")
        reads.clear()
        give = await desk.end(begun, known=begun.op, done=begun.go)
        assert reads == []
        await desk.change(operations, {"ordinal": 9}, id=begun.op.id)
        with pytest.raises(Superseded):
            await desk.end(give, known=give.op, done=give.go)
        assert reads == [f"{begun.op.id} locked"]

    play(story)


def test_the_problem_of_an_operation_that_was_abandoned_is_shown(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("at_once")
        following = await desk.end(begun, Outcome(problem=Problem(code=ABANDONED, message="enough")))
        await desk.end(following)
        (fault,) = await desk.all(cell.faults)
        assert fault["message"] == "The operation was abandoned by an administrator."
        assert (await desk.server())["vm_state"] == ERROR, "no copy that may run is whole"

    play(story)
