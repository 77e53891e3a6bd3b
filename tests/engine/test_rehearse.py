"""A dry run does the plan and nothing else; it says what would happen, or why it would not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed, NotYet, Refused
from kilonova.domain.params import Params
from kilonova.engine import rehearse as rehearsing
from kilonova.engine.accept import Ask
from kilonova.engine.course import Problem
from kilonova.engine.journal import Op
from kilonova.engine.model import CONTROL, Operation, Step
from kilonova.engine.rehearse import Planned, plan_only, planned_steps, rehearse
from kilonova.operations import REGISTRY
from kilonova.operations.facts import HERE, CopyFacts, DeleteFacts
from kilonova.schema.tables import cell, journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import CAUSE, OPERATION, SERVER, engine_of, operation, play, store_of
from tests.support.neighbours import contents

Work = Callable[[Any], Awaitable[None]]


async def nothing(ctx: Any) -> None: ...


class Planning(Operation[CopyFacts, Params]):
    facts_type, params_type = CopyFacts, Params
    name = "planning"

    def __init__(self, work: Work, *, plan: bool = True) -> None:
        first = Step("choose", work, CONTROL, plan=plan)
        self.steps = [first, Step("stop", nothing, HERE, undo=nothing), Step("end", nothing, CONTROL, no_return=True)]


def planned(work: Work, *, plan: bool = True, before: CopyFacts | None = None) -> tuple[Planned[CopyFacts], Op]:
    op = operation(kind="planning")
    op.known_facts, op.known_params = before or CopyFacts(), Params()
    chosen = Planning(work, plan=plan)
    engine: Any = SimpleNamespace(world=None, scheduler=None, operation=lambda kind: chosen)
    journal_of_test: Any = None
    return asyncio.run(plan_only(engine, journal_of_test, chosen, op, None)), op


def test_the_plan_is_done_and_its_findings_are_not_kept() -> None:
    async def choose(ctx: Any) -> None:
        assert ctx.rehearsing, "what it chooses is not going to be claimed"
        ctx.facts.host, ctx.documents["decision"] = "host2", {"host": "host2"}

    found, op = planned(choose)
    assert (found.facts.host, found.documents, found.problem) == ("host2", {"decision": {"host": "host2"}}, None)
    assert op.known_facts.host == "", "the next dry run begins as this one did"


def test_a_first_step_that_is_no_plan_is_not_done() -> None:
    async def act(ctx: Any) -> None:
        raise AssertionError("it changes something")

    assert planned(act, plan=False, before=CopyFacts(host="host1"))[0] == Planned(CopyFacts(host="host1"))


def test_a_plan_that_fails_is_the_answer() -> None:
    async def fail(ctx: Any) -> None:
        ctx.facts.host = "host2"
        raise Failed("no_valid_host", "nothing fits", details={"a": 1})

    found, _ = planned(fail)
    assert found.problem == Problem(code="no_valid_host", message="nothing fits", step="choose", details={"a": 1})
    assert found.facts.host == ""


@pytest.mark.parametrize("decision", [None, {"unknown": ["host1"]}])
def test_a_plan_that_would_wait_says_for_what(decision: Any) -> None:
    async def wait(ctx: Any) -> None:
        ctx.facts.decision = decision
        raise NotYet("host1 to answer", 5.0)

    found, _ = planned(wait)
    code, details = ("not_yet", {}) if decision is None else ("not_known", {"decision": decision})
    text = "it would wait for host1 to answer"
    assert found.problem == Problem(code=code, message=text, step="choose", details=details)


def test_each_step_says_where_it_is_done_and_what_it_means() -> None:
    steps = [(one.name, one.where, one.undone_by, one.no_return) for one in planned_steps(Planning(nothing))]
    assert steps == [
        ("choose", "control", False, False),
        ("stop", HERE.name, True, False),
        ("end", "control", False, True),
    ]


def run_dry(path: Path, kind: str, *live: str, **values: Any) -> Any:
    """Rehearse a request about the server, which may have a live operation."""
    answers: list[Any] = []

    async def body(tx: Tx) -> None:
        busy = {"operation_id": "o", "task_state": "busy"} if live else {"operation_id": None, "task_state": None}
        await rows.put(tx, cell.servers, **{**SERVER, **busy, **values})
        for one in live:
            await rows.put(tx, journal.operations, **{**OPERATION, "kind": one, "facts": '{"was": "active"}'})
        before = await contents(tx, journal.operations), await contents(tx, cell.servers)
        engine = engine_of(tx)
        engine.scheduler = None
        try:
            answers.append(await rehearse(engine, store_of(tx), Ask(kind=kind, server_id="s", cause=CAUSE)))
        except Refused as why:
            answers.append(why)
        assert (await contents(tx, journal.operations), await contents(tx, cell.servers)) == before

    play(path, body)
    return answers[0]


def test_a_request_that_would_join_shows_the_operation_that_is_under_way(tmp_path: Path) -> None:
    shown = run_dry(tmp_path, "delete", "delete")
    assert (shown.operation, shown.server, shown.joins, shown.supersedes) == ("delete", "s", "o", None)
    assert (shown.facts, shown.problem, shown.outlook) == ({"was": "active"}, None, {})


def test_a_request_that_would_take_over_says_from_what(tmp_path: Path) -> None:
    shown = run_dry(tmp_path, "delete", "stop")
    assert (shown.joins, shown.supersedes, shown.problem) == (None, "o", None)
    assert shown.steps == planned_steps(REGISTRY["delete"])


def test_a_request_about_an_idle_server_takes_over_nothing(tmp_path: Path) -> None:
    shown = run_dry(tmp_path, "delete")
    assert (shown.joins, shown.supersedes) == (None, None)


def test_a_request_is_refused_as_it_would_be_later(tmp_path: Path) -> None:
    """Here the server is busy with something else."""
    refused = run_dry(tmp_path, "stop", "reboot")
    assert isinstance(refused, Refused) and "stop" in refused.message


def test_facts_that_the_plan_finds_are_shown_with_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(*_: Any) -> Planned[DeleteFacts]:
        return Planned(DeleteFacts(buried=True), {"decision": {"a": 1}}, PROBLEM)

    monkeypatch.setattr(rehearsing, "plan_only", found)
    monkeypatch.setattr(REGISTRY["delete"], "outlook", lambda subject, facts: {"buried": facts.buried}, raising=False)
    shown = run_dry(tmp_path, "delete")
    assert (shown.facts, shown.problem) == ({"buried": True, "decision": {"a": 1}}, PROBLEM)
    assert shown.outlook == {"buried": True}


PROBLEM = Problem(code="no_valid_host", message="nothing fits")
