"""A CONTROL step is done, ended, put off or handed on by what it raises and by what comes next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import (
    CommitFailed,
    CommitUnknown,
    Conflict,
    Failed,
    NotYet,
    Refused,
    StoreError,
    Superseded,
    Unreachable,
)
from kilonova.domain.params import Params
from kilonova.engine import run
from kilonova.engine.conclude import Next, Outcome
from kilonova.engine.core import TRIES
from kilonova.engine.course import Go, Problem
from kilonova.engine.model import CONTROL, Step, Target
from kilonova.engine.run import LOOKED_AT_AGAIN
from kilonova.engine.secrets import keep_sealed
from kilonova.operations import REGISTRY
from kilonova.operations.facts import CopyFacts
from kilonova.schema.tables import journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import CAUSE, OPERATION, STEP, engine_of, operation, play, store_of

HERE, THERE = Target(""), Target("host1", 1)
STORE: Any = SimpleNamespace(name="cell1")


def go(target: Target = HERE, **values: Any) -> Go:
    return Go(**{"step": "plan", "way": "do", "target": target, **values})


class Calls(list[tuple[Any, ...]]):
    """What was called, with what; each call gives this answer."""

    def to(self, name: str, answer: Any = None) -> Callable[..., Awaitable[Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            self.append((name, *given, *named.items()))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def engine(calls: Calls, **values: Any) -> Any:
    return SimpleNamespace(
        worker="me", wake=calls.to("wake"), on_mine=calls.to("on_mine"), operation=REGISTRY.get, **values
    )


# -- the next step is handed on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_loop", [True, False])
@pytest.mark.parametrize(
    ("following", "parent", "called"),
    [
        ({"ended": "done"}, None, []),
        ({"ended": "done", "go": go()}, "p", ["notify_parent"]),
        ({"go": go(THERE)}, "p", ["wake"]),
        ({"go": go()}, "p", ["on_mine"]),
        ({"go": go(delay=5.0)}, "p", ["wake"]),
        ({}, "p", ["wake"]),
    ],
    ids=str,
)
def test_who_hears_of_the_next_step(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, following: Any, parent: Any, called: list[str], has_loop: bool
) -> None:
    """Its host, this worker if it has taken the step, or any conductor; the parent at the end."""
    monkeypatch.setattr(run, "notify_parent", calls.to("notify_parent"))
    one, position = engine(calls), Next(operation(parent_id=parent), **following)
    if not has_loop:
        one.on_mine = None
        called = ["wake" if name == "on_mine" else name for name in called]
    asyncio.run(run.pass_on(one, STORE, position))
    assert [name for name, *_ in calls] == called
    for name, *given in calls:
        host = position.host
        if name == "wake":
            assert given == ["cell1", "o", host]
        elif name == "notify_parent":
            assert given == [one, STORE, "p"]
        else:
            assert given == [STORE, position]


@pytest.mark.parametrize(
    ("last", "is_handed_on"),
    [(None, False), ({"ended": "done"}, True), ({"go": go(THERE)}, True), ({"go": go(delay=5.0)}, False), ({}, False)],
    ids=str,
)
def test_a_conductor_goes_on_as_long_as_the_next_step_is_its_own(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, last: Any, is_handed_on: bool
) -> None:
    """A step that is to be tried later is found by the next look for work."""
    mine = [Next(operation(), go=go(), ended=None) for _ in range(3)]
    end = None if last is None else Next(operation(), **last)
    order = [*mine, end]
    done: list[Any] = []

    async def one(engine: Any, store: Any, current: Next) -> Any:
        done.append(current)
        return order[len(done)]

    monkeypatch.setattr(run, "_one", one)
    monkeypatch.setattr(run, "pass_on", calls.to("pass_on"))
    monkeypatch.setattr(run, "take_control", calls.to("take_control", mine[0]))
    of_test = engine(calls)
    assert asyncio.run(run.drive(of_test, STORE, "o", early=4)) is end
    assert done == mine
    assert calls == [("take_control", of_test, STORE, "o", ("early", 4))] + [
        ("pass_on", of_test, STORE, end) for _ in range(is_handed_on)
    ]


@pytest.mark.parametrize("has_ports", [True, False, None])
@pytest.mark.parametrize("filters", [True, False])
def test_the_answer_to_a_report_carries_the_next_order(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, has_ports: bool | None, filters: bool
) -> None:
    monkeypatch.setattr(run, "with_devices", calls.to("with_devices", "order"))
    server: Any = None if has_ports is None else SimpleNamespace(has_ports=has_ports)
    order: Any = "bare"
    following = Next(operation(), go=go(THERE), order=order, server=server)
    one = engine(calls, world="world")
    assert asyncio.run(run.answer_with(one, STORE, following, filters=filters)) == "order"
    asked = (("has_ports", bool(has_ports)), ("filters", filters))
    assert calls == [("with_devices", "world", "bare", "host1", *asked)]


@pytest.mark.parametrize("why", ["no order", "no step", "an error"])
def test_what_the_answer_cannot_carry_is_handed_on(monkeypatch: pytest.MonkeyPatch, calls: Calls, why: str) -> None:
    monkeypatch.setattr(run, "with_devices", calls.to("with_devices", StoreError("away")))
    monkeypatch.setattr(run, "pass_on", calls.to("pass_on"))
    order: Any = None if why == "no order" else "bare"
    following = Next(operation(), go=None if why == "no step" else go(THERE), order=order)
    one = engine(calls, world="world")
    assert asyncio.run(run.answer_with(one, STORE, following, filters=True)) is None
    assert calls[-1] == ("pass_on", one, STORE, following)
    assert len(calls) == (2 if why == "an error" else 1)


@pytest.mark.parametrize(
    ("of_operation", "of_step", "is_found"),
    [
        ({}, {}, True),
        ({}, {"worker": "another"}, False),
        ({}, {"worker": "another", "host": "host1"}, True),
        ({}, {"open": 0}, False),
        ({}, {"heir_of": "before"}, False),
        ({}, {"ordinal": 1}, False),
        ({"state": "done", "live": 0}, {}, False),
        ({"id": "another"}, {}, False),
    ],
    ids=str,
)
def test_after_an_unknown_commit_what_was_begun_is_found_again(
    tmp_path: Path, of_operation: Any, of_step: Any, is_found: bool
) -> None:
    """As far as its first step is a host's, or was taken by this worker."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, journal.operations, **{**OPERATION, "kind": "migrate", **of_operation})
        await rows.put(tx, journal.steps, **{**STEP, "name": "claim", "state": "taken", "worker": "me", **of_step})
        found = await run.find_begun(engine_of(tx), tx, store_of(tx), "o")
        assert (found is not None) is is_found
        if found is not None:
            assert (found.op.id, found.step, found.ended) == ("o", REGISTRY["migrate"].step("claim"), None)
            assert found.go is not None and found.go.target.host == of_step.get("host", "")

    play(tmp_path, body)


# -- a step is done -------------------------------------------------------------------------------------------------


def context(**values: Any) -> Any:
    slept = Calls()
    clock = SimpleNamespace(sleep=slept.to("sleep"))
    given: dict[str, Any] = {"slept": slept}
    given |= {"facts": CopyFacts(), "documents": {}, "changes": [], "server_changes": {}, "operation_id": "o", **values}
    return SimpleNamespace(world=SimpleNamespace(clock=clock), **given)


def performed(work: Callable[[Any], Awaitable[None]], **values: Any) -> tuple[Outcome, Any]:
    ctx, step = context(), Step("choose", work, CONTROL, undo=undone, **values)
    return asyncio.run(run.perform(Next(operation(), step=step, go=go()), ctx)), ctx


async def undone(ctx: Any) -> None:
    ctx.facts.host = "undone"


def raising(error: Exception) -> Callable[[Any], Awaitable[None]]:
    async def work(ctx: Any) -> None:
        ctx.facts.host = "host2"
        raise error

    return work


def test_what_a_step_finds_is_its_outcome() -> None:
    async def work(ctx: Any) -> None:
        ctx.facts.host, ctx.documents["decision"] = "host2", {"a": 1}

    outcome, _ = performed(work)
    assert outcome == Outcome(changed_facts={"host": "host2"}, documents={"decision": {"a": 1}})
    back = Next(operation(), step=Step("choose", work, CONTROL, undo=undone), go=go(way="undo"))
    assert asyncio.run(run.perform(back, context())).changed_facts == {"host": "undone"}


def test_facts_change_only_when_the_step_has_ended() -> None:
    ctx, before = context(), CopyFacts()
    ctx.facts = before
    step = Step("choose", undone, CONTROL)
    asyncio.run(run.perform(Next(operation(), step=step, go=go()), ctx))
    assert before == CopyFacts(), "another try begins with what is stored"


@pytest.mark.parametrize(
    ("error", "code", "message", "elsewhere", "final"),
    [
        (Failed("broken", "no space", elsewhere=True), "broken", "no space", True, False),
        (Failed("broken", "no space", final=True), "broken", "no space", False, True),
        (Refused("busy", "it is busy"), "refused", "it is busy", False, False),
        (Conflict("changed"), "refused", "changed", False, False),
        (StoreError("halted"), "refused", "halted", False, False),
        (ValueError("a fault"), "unexpected", "ValueError: a fault", False, True),
    ],
    ids=str,
)
def test_a_step_that_fails_is_a_problem(
    error: Exception, code: str, message: str, elsewhere: bool, final: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        outcome, _ = performed(raising(error))
    problem = Problem(code=code, message=message, step="choose", elsewhere=elsewhere, final=final)
    assert outcome.problem is not None and outcome.problem.details in (None, {})
    assert Problem(**{**problem_fields(outcome.problem), "details": None}) == problem
    assert [record.exc_info is not None for record in caplog.records] == [True] * (code == "unexpected")


def problem_fields(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in problem.__struct_fields__}


def test_a_step_that_does_not_end_in_time_is_a_problem() -> None:
    async def hang(ctx: Any) -> None:
        await asyncio.Event().wait()

    outcome, _ = performed(hang, deadline=0.01)
    text = "choose did not end within 0 s"
    assert outcome.problem == Problem(code="deadline", message=text, step="choose")


@pytest.mark.parametrize("error", [Superseded("it has moved on"), NotYet("host1 to answer", 5.0)], ids=str)
def test_a_step_that_has_no_outcome_yet_has_none(error: Exception) -> None:
    with pytest.raises(type(error)):
        performed(raising(error))


class Trying:
    """A step whose COMMIT elsewhere goes wrong so often."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.tries = error, times, 0

    async def __call__(self, ctx: Any) -> None:
        assert ctx.facts.host == "" and ctx.changes == [] and ctx.server_changes == {}
        self.tries += 1
        ctx.facts.host = "host2"
        ctx.changes.append("change")
        ctx.server_changes["name"] = "new"
        if self.tries <= self.times:
            raise self.error


@pytest.mark.parametrize(
    ("error", "times", "known"),
    [
        (CommitUnknown("the line went dead"), 20, True),
        (CommitFailed("the disk was full"), 20, True),
        (Unreachable("away"), TRIES - 1, True),
        (Unreachable("away"), TRIES, False),
    ],
    ids=str,
)
def test_a_commit_that_went_wrong_is_tried_again_as_if_nothing_had_been_tried(
    error: Exception, times: int, known: bool
) -> None:
    """A database that is away makes the operation wait, not the worker."""
    work = Trying(error, times)
    if known:
        outcome, ctx = performed(work)
        assert (outcome.changed_facts, ctx.changes, ctx.server_changes) == (
            {"host": "host2"},
            ["change"],
            {"name": "new"},
        )
        assert (work.tries, ctx.slept) == (times + 1, [("sleep", 0.1)] * times), "after a moment each time"
        return
    with pytest.raises(NotYet) as waits:
        performed(work)
    wait = waits.value
    assert (work.tries, wait.waiting_for) == (TRIES, f"a database to answer: {error}")
    assert (wait.seconds, wait.for_answer) == (LOOKED_AT_AGAIN, True)


# -- and ended, or put off ------------------------------------------------------------------------------------------


def test_what_was_done_is_concluded_as_it_was_read(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    monkeypatch.setattr(run, "prepare", calls.to("prepare", "ctx"))
    monkeypatch.setattr(run, "perform", calls.to("perform", "outcome"))
    monkeypatch.setattr(run, "conclude", calls.to("conclude", "next"))
    op, step = operation(), go()
    one, following = engine(calls), Next(op, go=step)
    assert asyncio.run(run._one(one, STORE, following)) == "next"
    assert calls[-1] == ("conclude", one, STORE, "o", 2, "outcome", ("ctx", "ctx"), ("done", step), ("known", op))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("owner", ["", "before"])
def test_what_a_step_found_before_it_waits_is_kept_if_it_says_so(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, keeps: bool, owner: str
) -> None:
    """Not in an undo of another operation's step: these are not its facts."""
    wait = NotYet("host1 to answer", 5.0, keeps_facts=keeps)
    monkeypatch.setattr(run, "prepare", calls.to("prepare", context(facts=CopyFacts(host="host2"))))
    monkeypatch.setattr(run, "perform", calls.to("perform", wait))
    monkeypatch.setattr(run, "postpone", calls.to("postpone"))
    one = engine(calls)
    one.operation = REGISTRY.__getitem__
    assert asyncio.run(run._one(one, STORE, Next(operation(), go=go(owner=owner)))) is None
    found = {"host": "host2"} if keeps and not owner else {}
    assert calls[-1] == ("postpone", one, STORE, "o", 2, wait, found)


@pytest.mark.parametrize("where", ["perform", "conclude"])
def test_a_step_that_somebody_else_has_ended_is_left(monkeypatch: pytest.MonkeyPatch, calls: Calls, where: str) -> None:
    for name in ("prepare", "perform", "conclude"):
        monkeypatch.setattr(run, name, calls.to(name, Superseded("moved on") if name == where else None))
    assert asyncio.run(run._one(engine(calls), STORE, Next(operation(), go=go()))) is None


@pytest.mark.parametrize("with_secrets", [True, False])
@pytest.mark.parametrize("owner", ["", "before", "forgotten"])
def test_a_step_has_the_facts_of_its_operation_and_its_secrets_if_it_needs_them(
    tmp_path: Path, with_secrets: bool, owner: str
) -> None:
    """An inherited undo has those of the operation that it undoes."""
    step = Step("choose", undone, CONTROL, with_secrets=with_secrets)

    async def body(tx: Tx) -> None:
        await rows.put(tx, journal.operations, **{**OPERATION, "id": "before", "facts": '{"host": "host9"}'})
        await keep_sealed(tx, "o", "sealed")
        one = engine_of(tx)
        one.scheduler = None
        current = Next(operation(facts='{"host": "host1"}'), step=step, go=go(THERE, owner=owner))
        ctx = await run.prepare(one, store_of(tx), current)
        assert ctx.facts.host == ("host9" if owner == "before" else "host1")
        assert ctx.sealed == ("sealed" if with_secrets else "")
        assert (ctx.target, ctx.wake) == (THERE, one.wake)
        assert None not in (ctx.begin, ctx.find_begun, ctx.pass_on, ctx.ask)

    play(tmp_path, body)


def test_a_child_is_asked_for_by_its_parent(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> None:
    monkeypatch.setattr(run, "accept", calls.to("accept", "accepted"))
    ctx: Any = SimpleNamespace(cause=CAUSE, operation_id="parent")
    one, params = engine(calls), Params()
    assert asyncio.run(run._ask_child(one, ctx, STORE, "evacuate", "s", "child", params)) == "accepted"
    ((_, *given, ask),) = calls
    assert given == [one, STORE]
    assert (ask.kind, ask.server_id, ask.operation_id, ask.parent_id) == ("evacuate", "s", "child", "parent")
    assert (ask.params, ask.cause.user_id, ask.cause.through) == (params, "u", "operation parent")
