"""An operator's word about an operation: cancel, resume, abandon, and settle what was left; when each is refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import CommitUnknown, Refused
from kilonova.domain.params import Params
from kilonova.engine import abandon as abandoning
from kilonova.engine import cancel as cancelling
from kilonova.engine import findings as finding
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.cancel import cancel
from kilonova.engine.children import MOMENT, SOON, notify_parent, was_called
from kilonova.engine.conclude import Next, Outcome
from kilonova.engine.context import Context
from kilonova.engine.course import ABANDONED, Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.findings import settle
from kilonova.engine.model import CONTROL, DEBT, FOREVER, Step
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import findings, interventions, operations, steps
from kilonova.schema.tables.placement import allocations, consumers, resource_providers
from kilonova.store import rows
from tests.engine.desk import CAUSE, ON_HOST, Desk, Simple, work
from tests.support.small_cloud import SmallCloud, put

FINAL = Problem(code="x", message="no such device", final=True)


class MovedFacts(OperationFacts, kw_only=True):
    def consumers_held(self) -> list[str]:
        return ["m"]


def remembers(ctx: Context[Any, Params], result: Any) -> None:
    ctx.set_server(name=f"recorded: {result.settled}")


class Moving(Simple):
    name, facts_type = "moving", MovedFacts
    steps = (
        Step("claim", work, on=CONTROL, undo=work, claims=True, record=remembers, record_undo=remembers),
        Step("end", work, on=CONTROL),
    )


class Cleaning(Moving):
    """Its first step has no way back, the next one removes a copy."""

    name = "cleaning"
    steps = (
        Step("give", work, on=CONTROL, no_return=True, retry=FOREVER, event="compute_give", record=remembers),
        Step("remove", work, on=ON_HOST, when_declared=DEBT, retry=FOREVER),
        Step("rows", work, on=CONTROL, only_rows=True, retry=FOREVER),
    )


class Removing(Cleaning):
    name = "removing"
    steps = Cleaning.steps[1:]


class Rows(Cleaning):
    name = "rows"
    steps = Cleaning.steps[2:]


class Heir(Moving):
    name, supersedes = "heir", True
    steps = (Step("own", work, on=CONTROL, retry=FOREVER),)


KNOWN = {kind.name: kind() for kind in (Moving, Cleaning, Removing, Rows, Heir)}
Story = Callable[[Desk], Awaitable[None]]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Callable[[Story], None]:
    def plays(story: Story) -> None:
        async def whole() -> None:
            desk = await Desk.made(small_cloud, KNOWN)
            host = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "now", "epoch": 1}
            await put(desk.engine, "cell1", cell.hosts, **host, last_seen=small_cloud.clock.now())
            await story(desk)

        small_cloud.run(whole)

    return plays


async def stuck(desk: Desk, kind: str) -> str:
    """An operation whose undo, or whose first step without a way back, was refused for good."""
    begun = await desk.begun(kind) if kind != "removing" else await at_host(desk)
    refused = await desk.end(begun, Outcome(problem=FINAL))
    if kind == "moving":
        await desk.end(refused, Outcome(problem=FINAL))
    assert (await desk.operation(begun.op.id))["state"] == "waiting"
    return begun.op.id


async def at_host(desk: Desk) -> Next:
    name = (await desk.ask("removing")).operation_id
    await desk.take(name, 1)
    return Next(await desk.journal.read(lambda tx: abandoning.log.load(tx, name)))


def word(desk: Desk, verb: str, name: str) -> Awaitable[None]:
    if verb == "cancel":
        return cancel(desk.engine, desk.journal, name, "alice")
    if verb == "resume":
        return resume(desk.engine, desk.journal, name, CAUSE)
    return abandon(desk.engine, desk.journal, name, CAUSE, "enough")


async def refusal(told: Awaitable[None]) -> str:
    with pytest.raises(Refused) as refused:
        await told
    return refused.value.code


@pytest.mark.parametrize("verb", ["cancel", "resume", "abandon"])
def test_nothing_can_be_said_about_what_is_not_there_or_has_ended(play: Any, verb: str) -> None:
    async def story(desk: Desk) -> None:
        assert await refusal(word(desk, verb, "o")) == "not_found"
        name = await stuck(desk, "moving")
        await desk.change(operations, {"live": 0, "state": "failed"}, id=name)
        assert await refusal(word(desk, verb, name)) == "ended"
        if verb != "cancel":
            await desk.change(operations, {"live": 1, "state": "waiting"}, id=name)
            await desk.change(steps, {"open": 0}, operation_id=name)
            assert await refusal(word(desk, verb, name)) == "ended"
            await desk.journal.write(lambda tx: rows.remove(tx, steps, operation_id=name))
            assert await refusal(word(desk, verb, name)) == "ended"
        assert await desk.all(interventions) == []

    play(story)


# -- cancel ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_operation_is_undone_at_once(play: Any) -> None:
    async def story(desk: Desk) -> None:
        passed = list[Next]()

        async def on_mine(journal: Any, following: Next) -> None:
            passed.append(following)

        desk.engine.on_mine = on_mine
        begun = await desk.begun("moving")
        await word(desk, "cancel", begun.op.id)
        op = await desk.operation(begun.op.id)
        assert op["state"] == "undoing" and "cancelled by alice" in op["error"]
        assert [following.go and following.go.way for following in passed] == ["undo"]

    play(story)


@pytest.mark.parametrize("mode", ["back", "ending"])
def test_one_that_is_being_undone_is_not_cancelled_again(play: Any, mode: str) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("moving")
        await desk.change(operations, {"course": f'{{"mode": "{mode}"}}'}, id=begun.op.id)
        before = await desk.states(begun.op.id)
        await word(desk, "cancel", begun.op.id)
        assert await desk.states(begun.op.id) == before

    play(story)


def test_nor_is_one_that_has_passed_its_point_of_no_return(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("cleaning")
        assert await refusal(word(desk, "cancel", begun.op.id)) == "no_return"
        assert cancelling.BACK == "back"

    play(story)


# -- resume ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "subject"), [("moving", "conductor.wake"), ("removing", "host.host1")])
def test_a_step_that_waits_is_tried_now(play: Any, caplog: pytest.LogCaptureFixture, kind: str, subject: str) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, kind)
        assert (await desk.step(name))["not_before"] > 0
        await desk.cloud.clock.sleep(0.1)
        desk.woken.clear()
        await word(desk, "resume", name)
        await desk.cloud.clock.sleep(0.1)
        assert (await desk.step(name))["not_before"] == 0 and desk.woken == [(subject, name)]
        (said,) = await desk.all(interventions)
        step = await desk.step(name)
        assert (said["verb"], said["ordinal"], said["number"], said["user_id"]) == ("resume", step["ordinal"], 1, "u")
        assert f"operation resumed: operation={name} user=u" in caplog.text

    with caplog.at_level(logging.WARNING):
        play(story)


def test_one_that_is_being_tried_is_not_resumed(play: Any) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("moving")
        assert await refusal(word(desk, "resume", begun.op.id)) == "being_tried"

    play(story)


def test_each_word_about_a_step_is_recorded_once(play: Any) -> None:
    """The same request is asked for again when its COMMIT was unknown (law 12)."""

    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        for request in ("one", "one", "two"):
            cause = CAUSE.__class__(user_id="u", project_id="p", through="api", request_id=request)
            await resume(desk.engine, desk.journal, name, cause)
        assert [(row["number"], row["request_id"]) for row in await desk.all(interventions)] == [(1, "one"), (2, "two")]

    play(story)


# -- abandon --------------------------------------------------------------------------------------------------------


async def hold(desk: Desk) -> None:
    """What placement holds for the server, for its migration, and for another server."""
    await put(desk.engine, "placement", resource_providers, id=1, uuid="p", name="host1", accepting=1)
    for number, consumer in enumerate(("s", "m", "t"), 1):
        await put(desk.engine, "placement", consumers, uuid=consumer, project_id="p", user_id="u", type="INSTANCE")
        keys = {"id": number, "consumer": consumer, "provider": "p", "resource_class": "VCPU", "used": number}
        await put(desk.engine, "placement", allocations, **{k: v for k, v in keys.items() if k in allocations.c})


def test_an_abandoned_undo_is_skipped_and_what_it_left_is_a_finding(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        step = await desk.step(name)
        await word(desk, "abandon", name)
        op, server = await desk.operation(name), await desk.server()
        assert op["state"] == "failed" and "claim was abandoned by u: enough" in op["error"]
        assert "no such device" in op["error"], "and why"
        assert (await desk.states(name))[-1] == ("claim", "undo", ABANDONED)
        (said,), (left,) = await desk.all(interventions), await desk.all(findings)
        assert (said["verb"], said["reason"], said["ordinal"]) == ("abandon", "enough", step["ordinal"])
        assert (left["kind"], left["step"], left["way"], left["open"], left["reason"]) == (
            *("moving", "claim", "undo"),
            *(1, "enough"),
        )
        assert "no such device" in left["error"] and left["server_id"] == "s"
        assert "recorded: " in server["name"] and "enough" in server["name"]
        assert f"operation abandoned: operation={name} step=claim user=u reason=enough" in caplog.text

    with caplog.at_level(logging.WARNING):
        play(story)


def test_an_abandoned_step_without_a_way_back_is_skipped_and_the_rest_is_done(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "cleaning")
        await word(desk, "abandon", name)
        assert await desk.states(name) == [
            ("give", "do", "failed"),
            ("give", "do", ABANDONED),
            ("remove", "do", "ready"),
        ]
        (event,) = await desk.all(cell.action_events, event="compute_give")
        assert event["result"] == "Error" and "was abandoned by u" in event["details"]
        await desk.cloud.clock.sleep(0.1)
        assert ("host.host1", name) in desk.woken

    play(story)


@pytest.mark.parametrize("kind", ["moving", "cleaning"])
def test_what_was_never_refused_for_good_is_not_abandoned(play: Any, kind: str) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)
        assert await refusal(word(desk, "abandon", begun.op.id)) == "not_stuck"

    play(story)


def test_nor_what_somebody_is_trying(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        await desk.change(steps, {"state": "taken", "worker": "me"}, operation_id=name, open=1)
        assert await refusal(word(desk, "abandon", name)) == "being_tried"

    play(story)


def test_nor_a_step_that_only_writes_rows(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "rows")
        assert await refusal(word(desk, "abandon", name)) == "not_abandonable"

    play(story)


@pytest.mark.parametrize(
    ("host", "state", "code"),
    [
        ({}, "ready", "may_run"),
        ({}, "taken", "being_tried"),
        ({"last_seen": 0.0}, "ready", "may_run"),
        ({"forced_down": 1}, "ready", ""),
        ({"forced_down": 1}, "taken", ""),
        ({"fenced": "by a fence"}, "ready", ""),
    ],
)
def test_a_copy_that_may_run_is_abandoned_only_with_its_host(
    play: Any, host: dict[str, Any], state: str, code: str
) -> None:
    """Law 3: it owes the removal then."""

    async def story(desk: Desk) -> None:
        name = await stuck(desk, "removing")
        await desk.change(steps, {"state": state}, operation_id=name, open=1)
        if host:
            await desk.change(cell.hosts, host, name="host1")
        if code:
            assert await refusal(word(desk, "abandon", name)) == code
            assert await desk.all(findings) == [] and (await desk.step(name))["open"]
            return
        await word(desk, "abandon", name)
        assert [(debt["host"], debt["copy"]) for debt in await desk.all(cell.debts)] == [("host1", 3)]
        assert await desk.all(findings) == [], "the debt says what is left"

    play(story)


def test_the_entry_that_is_abandoned_is_the_one_that_was_looked_at(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    really = abandoning._held

    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")

        async def meanwhile(engine: Any, seen: Any) -> str:
            step = await desk.step(name)
            await desk.change(steps, {"ordinal": step["ordinal"] + 1}, operation_id=name, open=1)
            await desk.change(operations, {"ordinal": step["ordinal"] + 1}, id=name)
            return await really(engine, seen)

        monkeypatch.setattr(abandoning, "_held", meanwhile)
        assert await refusal(word(desk, "abandon", name)) == "being_tried"
        assert (await desk.step(name))["open"]

    play(story)


def test_after_an_unknown_commit_it_is_not_abandoned_again(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "cleaning")
        write, failures = desk.journal.write, iter([True])

        async def unknown(body: Any) -> Any:
            result = await write(body)
            if next(failures, False):
                raise CommitUnknown("the line went dead")
            return result

        monkeypatch.setattr(desk.journal, "write", unknown)
        await word(desk, "abandon", name)
        assert len(await desk.all(interventions)) == len(await desk.all(findings)) == 1
        assert (await desk.step(name))["name"] == "remove"

    play(story)


def test_an_inherited_entry_is_judged_by_the_step_of_its_owner(play: Any) -> None:
    async def story(desk: Desk) -> None:
        await desk.begun("moving")
        undo = await desk.begun("heir")
        assert undo.step is not None and undo.step.name == "claim"
        await desk.end(undo, Outcome(problem=FINAL))
        await word(desk, "abandon", undo.op.id)
        (left,) = await desk.all(findings)
        assert (left["kind"], left["step"], left["operation_id"]) == ("moving", "claim", undo.op.id)
        assert (await desk.operation(undo.op.id))["state"] == "failed"

    play(story)


def test_of_two_abandoned_entries_both_reasons_are_shown(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "cleaning")
        await word(desk, "abandon", name)
        await desk.take(name, 3)
        op = await desk.journal.read(lambda tx: abandoning.log.load(tx, name))
        await desk.end(Next(op), Outcome(problem=FINAL))
        await desk.change(cell.hosts, {"forced_down": 1}, name="host1")
        await word(desk, "abandon", name)
        error = (await desk.operation(name))["error"]
        assert "give was abandoned by u" in error and "remove was abandoned by u" in error

    play(story)


# -- settle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "host1"])
def test_a_settled_finding_is_settled_once_and_its_host_looks_at_its_guests(
    play: Any, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    async def story(desk: Desk) -> None:
        texts = {"id": "f", "operation_id": "o", "kind": "moving", "step": "claim", "way": "undo", "host": host}
        await put(desk.engine, "cell1", findings, **texts, holds="[]", user_id="u", reason="enough", open=1)
        await settle(desk.journal, "f", CAUSE, "seen to", 7.0)
        (row,), (known,) = await desk.all(findings), await desk.all(cell.hosts)
        assert (row["open"], row["settled_by"], row["settled_reason"], row["settled_at"]) == (0, "u", "seen to", 7.0)
        assert known["epoch"] == (2 if host else 1)
        assert await refusal(settle(desk.journal, "f", CAUSE, "again", 8.0)) == "settled"
        assert await refusal(settle(desk.journal, "g", CAUSE, "again", 8.0)) == "not_found"
        assert "finding settled: finding=f user=u reason=seen to" in caplog.text

    with caplog.at_level(logging.WARNING, logger=finding.__name__):
        play(story)


def test_control_has_no_hosts_to_look_at_their_guests(play: Any) -> None:
    async def story(desk: Desk) -> None:
        texts = {"id": "f", "operation_id": "o", "kind": "moving", "step": "claim", "way": "undo", "host": "host1"}
        await put(desk.engine, "control", findings, **texts, holds="[]", user_id="u", reason="enough", open=1)
        await settle(desk.engine.world.db.control, "f", CAUSE, "seen to", 7.0)

    play(story)


# -- children -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "is_called"),
    [
        ({"state": "taken", "not_before": 0.0}, True),
        ({"state": "ready", "not_before": 60.0}, True),
        ({"state": "ready", "not_before": SOON / 2}, False),
        ({"state": "ready", "not_before": 60.0, "open": 0}, False),
        ({"state": "ready", "not_before": 60.0, "operation_id": "another"}, False),
    ],
)
def test_a_parent_looks_soon_when_a_child_has_ended(play: Any, step: dict[str, Any], is_called: bool) -> None:
    """And once: several that end together call it once."""

    async def story(desk: Desk) -> None:
        now = desk.cloud.clock.now()
        texts = {"operation_id": "parent", "ordinal": 1, "name": "plan", "way": "do", "host": "", "open": 1}
        before = step["not_before"] and now + step["not_before"]
        await put(desk.engine, "cell1", steps, **{**texts, **step, "not_before": before})
        for _ in range(2):
            await notify_parent(desk.engine, desk.journal, "parent")
        (row,) = await desk.all(steps)
        assert row["not_before"] == (pytest.approx(now + SOON) if is_called else before)
        assert not desk.woken
        await desk.cloud.clock.sleep(SOON + 2 * MOMENT)
        times = 2 if is_called and step["state"] == "taken" else int(is_called)
        assert desk.woken == [("conductor.wake", "parent")] * times

    play(story)


@pytest.mark.parametrize(
    ("step", "called"),
    [
        ({"state": "taken", "taken_at": 5.0, "not_before": 6.0}, True),
        ({"state": "taken", "taken_at": 5.0, "not_before": 5.0}, False),
        ({"state": "taken", "taken_at": None, "not_before": 6.0}, False),
        ({"state": "ready", "taken_at": 5.0, "not_before": 6.0}, False),
    ],
)
def test_a_parent_was_called_since_it_looked(step: Any, called: bool) -> None:
    assert was_called(step) is called
