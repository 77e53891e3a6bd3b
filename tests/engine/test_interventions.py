"""An operator's word about an operation: cancel, resume, abandon, and settle what was left; when each is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kilonova.engine import cancel as cancelling
from kilonova.engine import findings as finding
from kilonova.engine.abandon import resume
from kilonova.engine.children import MOMENT, SOON, notify_parent, was_called
from kilonova.engine.conclude import Next
from kilonova.engine.findings import settle
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import findings, interventions, operations, steps
from kilonova.store import rows
from tests.engine.desk import CAUSE, Desk
from tests.engine.stuck import play as play
from tests.engine.stuck import refusal, stuck, word
from tests.support.small_cloud import put


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
