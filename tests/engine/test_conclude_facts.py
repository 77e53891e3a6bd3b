"""What a step hands on when it ends: facts, decisions, changes of the server; to the next step, in any journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Superseded
from kilonova.domain.messages import StepResult
from kilonova.engine import conclude as concluding
from kilonova.engine.accept import begin_operation
from kilonova.engine.conclude import Next, Outcome, cancel, conclude
from kilonova.engine.context import Newborn
from kilonova.engine.course import Problem
from kilonova.engine.journal import load
from kilonova.engine.model import CONTROL, DEBT, Notification, Step
from kilonova.engine.run import prepare
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import notifications, operations, steps
from kilonova.settings import NotificationOptions, Settings
from kilonova.store import rows
from tests.engine.desk import CAUSE, ON_HOST, Desk, work
from tests.engine.moving import ELSEWHERE, KNOWN, WRONG, Facts, Moving, at_host, finds, goes_on
from tests.engine.moving import play as play
from tests.support.small_cloud import SmallCloud, read


def tells(ctx: Any, result: Any) -> None:
    ctx.set_server(name=f"found {ctx.facts.found}")


class Finding(Moving):
    """Its steps, done and undone, show the facts that they see."""

    name = "finding"
    steps = (
        Step("look", work, on=CONTROL, undo=work, record=tells, record_undo=tells),
        Step("again", finds, on=CONTROL, at_once=True, undo=work, retry=1),
        Step("then", work, on=CONTROL, undo=work, task_state="then-ing"),
        Step("end", work, on=ON_HOST),
    )


class Retaking(Moving):
    """It tries another destination from its first step on, and shows what that does."""

    name, again_from = "retaking", "look"
    steps = (
        Step("look", work, on=CONTROL, undo=work, tries_elsewhere=True, task_state="looking", event="compute_look"),
    )


class Placing(Moving):
    """As `place`, which is control's: no server has a row there."""

    name, again_from, action, task_state = "placing", "look", None, None
    steps = (Step("look", work, on=CONTROL, undo=work, tries_elsewhere=True, event="compute_look"),)


def reports(ctx: Any, result: Any) -> None:
    ctx.set_server(name=f"{result.waived or 'done'} with disk {result.disk}")


def writes(ctx: Any, result: Any) -> None:
    async def change(tx: Any, now: float) -> None:
        await rows.change(tx, cell.servers, {"image_ref": "another"}, id="s")

    ctx.in_transaction(change)


class Reporting(Moving):
    name = "reporting"
    steps = (
        Step("look", work, on=CONTROL, undo=work),
        Step("make", work, on=ON_HOST, record=reports, when_declared=DEBT, task_state="making", undo=work),
        Step("write", work, on=ON_HOST, record=writes, undo=work),
        Step("use", work, on=ON_HOST, with_guest=True),
    )


class Retrying(Moving):
    name = "retrying"
    steps = (Moving.steps[0], Step("make", work, on=ON_HOST, retry=1), Moving.steps[3])


class Undoable(Moving):
    name = "undoable"
    steps = (
        Step("give", work, on=CONTROL, no_return=True, undo=work),
        Step("second", work, on=CONTROL, undo=work),
    )


class Leaving(Moving):
    """Its server is gone when it ends."""

    name = "leaving"
    notifications = (Notification("leave", fails_from="look"),)
    steps = (Step("look", work, on=CONTROL),)

    def finish(self, ctx: Any) -> None:
        ctx.set_server(deleted=1, host=None)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Finding(), Retaking(), Placing(), Reporting(), Retrying(), Undoable(), Leaving()):
        monkeypatch.setitem(KNOWN, kind.name, kind)


def test_a_step_that_was_done_here_writes_what_it_has_prepared(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        ctx = await prepare(desk.engine, desk.journal, begun)
        ctx.set_server(power_state=4)
        await desk.end(begun, ctx=ctx, done=begun.go, known=begun.op)
        assert (await desk.server())["power_state"] == 4

    play(story)


def test_but_not_what_a_failed_one_has(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        ctx = await prepare(desk.engine, desk.journal, begun)
        ctx.set_server(name="prepared")
        ctx.set_copy(7, "host1", "making")
        await desk.end(begun, Outcome(problem=WRONG), ctx=ctx, done=begun.go, known=begun.op)
        assert (await desk.server())["name"] == "n" and await desk.all(cell.copies) == []

    play(story)


def test_a_step_records_the_facts_that_it_found(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        await desk.end(begun, Outcome(changed_facts={"found": "it"}))
        assert (await desk.server())["name"] == "found it"

    play(story)


def test_an_inherited_undo_sees_the_facts_of_the_operation_that_it_undoes(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        course = '{"at": "look", "stack": [["look", "", 0]]}'
        await desk.change(operations, {"facts": '{"found": "of the owner"}', "course": course}, id=begun.op.id)
        undo = await desk.begun("heir")
        assert undo.step is not None and undo.step.name == "look"
        await desk.end(undo, Outcome(changed_facts={"found": "of the heir"}))
        assert (await desk.server())["name"] == "found of the owner"
        assert "of the" not in (await desk.operation(undo.op.id))["facts"]

    play(story)


@pytest.mark.parametrize(("documents", "stays"), [({}, True), ({"decision": {"hosts": []}}, False)])
def test_a_decision_stays_with_the_step_that_made_it(play: Any, documents: Any, stays: bool) -> None:
    """Until that has ended it is a fact: the step may wait."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        await desk.change(operations, {"facts": '{"decision": {"hosts": []}}'}, id=begun.op.id)
        await desk.end(begun, Outcome(documents=documents))
        assert ("decision" in (await desk.operation(begun.op.id))["facts"]) is stays
        (step,) = await desk.all(steps, operation_id=begun.op.id, name="look")
        assert ("decision" in (step["result"] or "")) is not stays

    play(story)


def test_a_step_that_is_done_at_once_is_repeated_and_undone_as_any_other(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        name = begun.op.id
        course = '{"at": "again", "stack": [["look", "", 0], ["again", "", 0]]}'
        await desk.change(operations, {"course": course}, id=name)
        await desk.change(steps, {"name": "again"}, operation_id=name)
        repeated = await desk.end(begun, Outcome(problem=WRONG))
        assert repeated.go is not None and repeated.go.delay > 0
        assert await desk.states(name) == [("again", "do", "failed"), ("again", "do", "ready")]
        then = await desk.end(repeated)
        undo = await desk.end(then, Outcome(problem=WRONG))
        await desk.end(undo)
        assert (await desk.states(name))[-2:] == [("then", "undo", "done"), ("again", "undo", "taken")]

    play(story)


def test_the_next_destination_is_tried_in_the_servers_new_turn_alone(play: Any) -> None:
    async def story(desk: Desk) -> None:
        undo = await desk.end(await desk.begun("retaking"), Outcome(problem=ELSEWHERE))
        again = await desk.end(undo)
        server = await desk.server()
        assert (again.op.turn, server["turn"], server["task_state"]) == (7, 7, "looking")
        undo = await desk.end(again, Outcome(problem=ELSEWHERE))
        await desk.change(cell.servers, {"turn": 20}, id="s")
        with pytest.raises(Superseded, match="server s has left turn 7"):
            await desk.end(undo)

    play(story)


def test_an_operation_of_control_has_neither_server_nor_events(play: Any) -> None:
    async def story(desk: Desk) -> None:
        control = desk.engine.world.db.control

        async def on_mine(*_: Any) -> None: ...

        desk.engine.on_mine = on_mine
        born = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 0, "params": {}, "facts": Facts(), "cause": CAUSE}
        newborn = Newborn(kind="placing", sealed="", is_mine=True, **born)  # type: ignore[arg-type]
        following = await control.write(lambda tx: begin_operation(desk.engine, tx, control, newborn))
        for problem in (ELSEWHERE, None, None):
            following = await conclude(desk.engine, control, "o", following.op.ordinal, Outcome(problem=problem))
        assert following.ended == "done"
        (row,) = await read(desk.engine, "control", operations)
        assert (row["state"], row["turn"]) == ("done", 5)

    play(story)


def test_a_cancel_in_control_shows_no_events(play: Any) -> None:
    async def story(desk: Desk) -> None:
        control = desk.engine.world.db.control
        born = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 0, "params": {}, "facts": Facts(), "cause": CAUSE}
        newborn = Newborn(kind="placing", sealed="", **born)  # type: ignore[arg-type]
        await control.write(lambda tx: begin_operation(desk.engine, tx, control, newborn))

        async def body(tx: Any) -> Next:
            op = await load(tx, "o", lock=True)
            assert op is not None
            return await cancel(desk.engine, tx, control, op, Problem(code="cancelled", message="by alice"))

        undo = await control.write(body)
        assert undo.go is not None and undo.go.way == "undo"

    play(story)


def test_the_server_is_locked_before_its_rows_are_decided_about(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL its host may write beside us."""
    locks, really = list[bool](), concluding.load_server

    async def loaded(*args: Any, lock: bool = False) -> Any:
        locks.append(lock)
        return await really(*args, lock=lock)

    monkeypatch.setattr(concluding, "load_server", loaded)

    async def story(desk: Desk) -> None:
        begun = await desk.begun("finding")
        await desk.end(begun)
        assert locks == [True]

        async def body(tx: Any) -> Next:
            op = await load(tx, begun.op.id, lock=True)
            assert op is not None
            return await cancel(desk.engine, tx, desk.journal, op, Problem(code="cancelled", message="by alice"))

        await desk.journal.write(body)
        assert locks == [True, True]

    play(story)


async def reported(desk: Desk) -> Next:
    """The operation at its step `make`, which host1 has."""
    following = await desk.end(await desk.begun("reporting"))
    assert await desk.take(following.op.id, following.op.ordinal) is not None
    return following


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Outcome(result=StepResult(disk="kept")), "done with disk kept"),
        (Outcome(waived="host1 is down"), "host1 is down with disk "),
    ],
)
def test_a_step_that_was_waived_is_recorded_so(play: Any, outcome: Outcome, name: str) -> None:
    async def story(desk: Desk) -> None:
        await desk.end(await reported(desk), outcome)
        assert (await desk.server())["name"] == name

    play(story)


def test_a_host_owes_nothing_for_an_operation_without_a_server(play: Any) -> None:
    async def story(desk: Desk) -> None:
        following = await at_host(desk, "debtor")
        await desk.change(operations, {"server_id": None}, id=following.op.id)
        await desk.end(following, Outcome(waived="host1 is down"))
        assert await desk.all(cell.debts) == []
        assert [host["epoch"] for host in await desk.all(cell.hosts)] == [2]

    play(story)


def test_the_order_of_the_next_step_has_all_that_was_written(play: Any) -> None:
    async def story(desk: Desk) -> None:
        write = await desk.end(await reported(desk), session="now", guard=goes_on)
        assert write.order is not None and write.order.guest is None
        use = await desk.end(write, session="now", guard=goes_on)
        assert use.order is not None and use.order.guest is not None and use.order.guest.image == "another"

    play(story)


def test_a_server_shows_what_is_done_now_and_not_what_is_undone(play: Any) -> None:
    async def story(desk: Desk) -> None:
        making = await reported(desk)
        assert (await desk.server())["task_state"] == "making"
        write = await desk.end(making)
        assert (await desk.server())["task_state"] == "making", "the next step has no word of its own"
        await desk.change(cell.servers, {"task_state": "shown"}, id="s")
        undo = await desk.end(write, Outcome(problem=WRONG))
        undo = await desk.end(undo)
        assert undo.step is not None and (undo.step.name, undo.go and undo.go.way) == ("make", "undo")
        assert (await desk.server())["task_state"] == "shown"

    play(story)


def test_the_destination_of_an_operation_stays(play: Any) -> None:
    """Law 11: it is counted there."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("reporting")
        ctx = await prepare(desk.engine, desk.journal, begun)
        ctx.destination = "host2"
        following = await desk.end(begun, ctx=ctx, done=begun.go, known=begun.op)
        assert (await desk.operation(begun.op.id))["destination"] == "host2"
        await desk.end(following)
        assert (await desk.operation(begun.op.id))["destination"] == "host2"

    play(story)


def test_a_host_is_not_given_at_once_what_it_has_just_failed_to_do(play: Any) -> None:
    async def story(desk: Desk) -> None:
        again = await desk.end(await at_host(desk, "retrying"), Outcome(problem=WRONG), session="now", guard=goes_on)
        assert again.go is not None and again.go.delay > 0 and again.order is None
        step = await desk.step(again.op.id)
        assert (step["state"], step["worker"]) == ("ready", None)

    play(story)


def test_an_undo_passes_no_point_of_no_return(play: Any) -> None:
    async def story(desk: Desk) -> None:
        second = await desk.end(await desk.begun("undoable"))
        assert second.order is None and second.is_mine
        undo = await desk.begun("heir")
        give = await desk.end(undo)
        assert give.step is not None and (give.step.name, give.go and give.go.way) == ("give", "undo")
        assert (await desk.operation(undo.op.id))["committed"] == 0
        own = await desk.end(give)
        assert own.is_mine and (await desk.operation(undo.op.id))["committed"] == 0

    play(story)


def test_a_failure_with_nothing_to_undo_ends_the_operation(play: Any) -> None:
    async def story(desk: Desk) -> None:
        assert (await desk.end(await desk.begun("heir"), Outcome(problem=WRONG))).ended == "undone"

    play(story)


def test_the_end_is_told_by_the_host_that_the_server_was_on(tmp_path: Path) -> None:
    cloud = SmallCloud(tmp_path, Settings(notifications=NotificationOptions(transport="bus")))

    async def story() -> list[dict[str, Any]]:
        desk = await Desk.made(cloud, KNOWN)
        await desk.end(await desk.begun("leaving"))
        return [msgspec.json.decode(one["body"]) for one in await desk.all(notifications)]

    told = [(one["event_type"], one["publisher_id"]) for one in cloud.run(story)]
    assert told == [
        ("instance.leave.start", "nova-compute:host1"),
        ("instance.leave.end", "nova-compute:host1"),
    ]
    cloud.close()


def test_a_failure_is_told_as_one(tmp_path: Path) -> None:
    cloud = SmallCloud(tmp_path, Settings(notifications=NotificationOptions(transport="bus")))

    async def story() -> list[str]:
        desk = await Desk.made(cloud, KNOWN)
        await desk.end(await desk.begun("leaving"), Outcome(problem=WRONG))
        return [one["event_type"] for one in await desk.all(notifications)]

    assert cloud.run(story) == ["instance.leave.start", "instance.leave.error"]
    cloud.close()
