"""The last transaction of an operation: what it writes for each end, and what a host that came back learns."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.server import ERROR
from kilonova.engine.accept import begin_operation
from kilonova.engine.conclude import Outcome, conclude
from kilonova.engine.context import Newborn
from kilonova.engine.course import ABANDONED, Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, FOREVER, Step
from kilonova.engine.run import prepare
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations
from tests.engine.desk import CAUSE, Desk, work
from tests.engine.moving import ELSEWHERE, KNOWN, WRONG, Moving
from tests.engine.moving import play as play
from tests.support.small_cloud import read

CANCELLED = Problem(code="cancelled", message="by alice")
GIVEN_UP = Problem(code=ABANDONED, message="enough", step="look")


class Ending(Moving):
    """It shows how it ended."""

    name, again_from = "ending", "look"
    steps = (Step("look", work, on=CONTROL, tries_elsewhere=True),)
    server: dict[str, Any] = {}

    def finish(self, ctx: Any) -> None:
        ctx.set_server(name=f"settled {ctx.problem and ctx.problem.code}", **self.server)

    def finish_undone(self, ctx: Any) -> None:
        ctx.set_server(name=f"undone {ctx.problem.code}", **self.server)


class Broken(Ending):
    name, server = "broken", {"vm_state": ERROR}


class Homeless(Ending):
    name, server = "homeless", {"runner_host": None}


class Moved(Ending):
    name, server = "moved", {"runner_host": "host2"}


class Insisting(Ending):
    name = "insisting"
    steps = (Step("look", work, on=CONTROL, retry=FOREVER),)


class Placing(Ending):
    """As `place`: no server has a row in control."""

    name, action, task_state = "placing", None, None


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Ending(), Broken(), Homeless(), Moved(), Insisting(), Placing()):
        monkeypatch.setitem(KNOWN, kind.name, kind)


FAILED = "The operation failed."


@pytest.mark.parametrize(
    ("kind", "problem", "state", "name", "faults"),
    [
        ("ending", None, "done", "settled None", []),
        ("ending", WRONG, "undone", "undone x", [FAILED]),
        ("ending", CANCELLED, "cancelled", "undone cancelled", []),
        ("broken", None, "done", "settled None", []),
        ("broken", WRONG, "undone", "undone x", [FAILED]),
        ("broken", CANCELLED, "cancelled", "undone cancelled", ["The operation was cancelled."]),
        ("ending", GIVEN_UP, "failed", "undone abandoned", ["The operation was abandoned by an administrator."]),
    ],
)
def test_each_end_is_shown(
    play: Any, kind: str, problem: Problem | None, state: str, name: str, faults: list[str]
) -> None:
    """A server that was set to ERROR says why, also when somebody cancelled the operation."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)
        assert (await desk.end(begun, Outcome(problem=problem))).ended == state
        server, op = await desk.server(), await desk.operation(begun.op.id)
        assert (server["name"], server["task_state"], server["operation_id"]) == (name, None, None)
        assert (op["error"] is None) is (problem is None)
        assert [fault["message"] for fault in await desk.all(cell.faults)] == faults
        assert [one["message"] for one in await desk.all(cell.actions)] == [None if problem is None else "Error"]

    play(story)


def test_an_operation_that_succeeded_elsewhere_has_no_error(play: Any) -> None:
    """The rows of its steps keep that of the first attempt."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun("ending")
        again = await desk.end(begun, Outcome(problem=ELSEWHERE))
        assert (await desk.operation(begun.op.id))["error"] is not None
        assert (await desk.end(again)).ended == "done"
        assert (await desk.operation(begun.op.id))["error"] is None
        assert (await desk.server())["name"].startswith("settled") and await desk.all(cell.faults) == []

    play(story)


def test_what_is_done_but_for_an_abandoned_step_is_settled(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("insisting")
        course = '{"at": "look", "problem": {"code": "abandoned", "message": "enough", "step": "before"}}'
        await desk.change(operations, {"course": course, "committed": 1}, id=begun.op.id)
        assert (await desk.end(begun)).ended == "failed"
        assert (await desk.server())["name"].startswith("settled")
        assert len(await desk.all(cell.faults)) == 1

    play(story)


@pytest.mark.parametrize(
    ("kind", "host", "epoch"), [("ending", "host1", 2), ("moved", "host2", 2), ("homeless", None, 1)]
)
@pytest.mark.parametrize("recheck", [1, 0])
def test_a_host_that_came_back_meanwhile_registers_again(
    play: Any, kind: str, host: str | None, epoch: int, recheck: int
) -> None:
    """The one that may run the guest now: it left its word while the operation decided about that."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)
        ctx = await prepare(desk.engine, desk.journal, begun)
        await desk.change(cell.servers, {"recheck": recheck, "runner_host": "host1"}, id="s")
        await desk.change(cell.hosts, {"name": host or "host1"}, name="host1")
        await desk.end(begun, ctx=ctx, done=begun.go, known=begun.op)
        assert (await desk.server())["recheck"] == 0
        assert [row["epoch"] for row in await desk.all(cell.hosts)] == [epoch if recheck else 1]

    play(story)


@pytest.mark.parametrize("problem", [None, WRONG, GIVEN_UP])
def test_an_operation_of_control_ends_without_a_server(
    play: Any, monkeypatch: pytest.MonkeyPatch, problem: Problem | None
) -> None:
    settled = list[str]()
    monkeypatch.setattr(Placing, "finish", lambda self, ctx: settled.append("done"))
    monkeypatch.setattr(Placing, "finish_undone", lambda self, ctx: settled.append(ctx.problem.code))

    async def story(desk: Desk) -> None:
        control = desk.engine.world.db.control

        async def on_mine(*_: Any) -> None: ...

        desk.engine.on_mine = on_mine
        born = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 0, "params": {}, "facts": OperationFacts()}
        newborn = Newborn(kind="placing", cause=CAUSE, sealed="", is_mine=True, **born)  # type: ignore[arg-type]
        begun = await control.write(lambda tx: begin_operation(desk.engine, tx, control, newborn))
        ended = await conclude(desk.engine, control, "o", begun.op.ordinal, Outcome(problem=problem))
        (row,) = await read(desk.engine, "control", operations)
        assert ended.ended == row["state"] != "running"
        assert settled == ["done" if problem is None else problem.code]

    play(story)
