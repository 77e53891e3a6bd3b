"""An operator abandons a step that was refused for good: what is skipped, what is written, and when it is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kilonova.domain.errors import CommitUnknown, Refused, Unreachable
from kilonova.engine import abandon as abandoning
from kilonova.engine.abandon import abandon
from kilonova.engine.accept import begin_operation
from kilonova.engine.children import require_forward
from kilonova.engine.conclude import Next, Outcome, conclude
from kilonova.engine.context import Newborn
from kilonova.engine.course import ABANDONED
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import findings, interventions, operations, steps
from kilonova.store import rows
from tests.engine.desk import CAUSE, Desk
from tests.engine.stuck import FINAL, MovedFacts, refusal, stuck, word
from tests.engine.stuck import play as play
from tests.support.small_cloud import read


def test_an_abandoned_undo_is_skipped_and_what_it_left_is_a_finding(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        step = await desk.step(name)
        await word(desk, "abandon", name)
        op, server = await desk.operation(name), await desk.server()
        assert op["state"] == "failed" and "claim was abandoned by u: enough" in op["error"]
        assert op["error"].count("no such device") == 1, "and why"
        (event,) = await desk.all(cell.action_events)
        assert event["details"] == "no such device", "an undo is no event"
        assert (await desk.states(name))[-1] == ("claim", "undo", ABANDONED)
        (said,), (left,) = await desk.all(interventions), await desk.all(findings)
        assert (said["verb"], said["reason"], said["ordinal"]) == ("abandon", "enough", step["ordinal"])
        assert (left["kind"], left["step"], left["way"], left["open"], left["reason"]) == (
            *("moving", "claim", "undo"),
            *(1, "enough"),
        )
        assert "no such device" in left["error"] and left["server_id"] == "s"
        assert server["name"].startswith("undone, MovedFacts: ") and "enough" in server["name"]
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
        assert (await desk.server())["name"].startswith("done, MovedFacts: ")
        await desk.cloud.clock.sleep(0.1)
        assert ("host.host1", name) in desk.woken

    play(story)


@pytest.mark.parametrize(("waiting_for", "text"), [(None, "it is running"), ("an answer", "it waits for an answer")])
@pytest.mark.parametrize("kind", ["moving", "cleaning"])
def test_what_was_never_refused_for_good_is_not_abandoned(
    play: Any, monkeypatch: pytest.MonkeyPatch, kind: str, waiting_for: str | None, text: str
) -> None:
    """Whether placement answers or not."""

    async def away(*_: Any) -> str:
        raise Unreachable("placement: no answer")

    monkeypatch.setattr(abandoning, "_held", away)

    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)
        await desk.change(operations, {"waiting_for": waiting_for}, id=begun.op.id)
        with pytest.raises(Refused, match=text) as refused:
            await word(desk, "abandon", begun.op.id)
        assert refused.value.code == "not_stuck"

    play(story)


@pytest.mark.parametrize(
    ("kind", "consumers"), [("moving", ["m", "s"]), ("cleaning", None), ("heir", ["m", "s"])], ids=str
)
def test_what_placement_held_is_noted_of_a_step_about_claims(
    play: Any, monkeypatch: pytest.MonkeyPatch, kind: str, consumers: list[str] | None
) -> None:
    """Of the server and of its move; of an inherited step by the facts of its owner."""
    asked = list[list[str]]()

    async def allocations(tx: Any, names: list[str]) -> list[Any]:
        asked.append(names)
        return []

    monkeypatch.setattr(abandoning, "read_allocations", allocations)

    async def story(desk: Desk) -> None:
        if kind == "heir":
            await desk.begun("moving")
            undo = await desk.begun("heir")
            await desk.end(undo, Outcome(problem=FINAL))
            name = undo.op.id
        else:
            name = await stuck(desk, kind)
        await word(desk, "abandon", name)
        assert asked == ([] if consumers is None else [consumers])
        assert [left["holds"] for left in await desk.all(findings)] == ["[]"]

    play(story)


def test_only_what_is_written_is_locked(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL a conductor may take the step meanwhile; a look holds up nobody."""
    locks, really, really_server = list[bool](), abandoning.log.load, abandoning.load_server

    async def loaded(tx: Any, operation_id: str, *, lock: bool = False) -> Any:
        locks.append(lock)
        return await really(tx, operation_id, lock=lock)

    async def loaded_server(*args: Any, lock: bool = False) -> Any:
        locks.append(lock)
        return await really_server(*args, lock=lock)

    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        monkeypatch.setattr(abandoning.log, "load", loaded)
        monkeypatch.setattr(abandoning, "load_server", loaded_server)
        await word(desk, "resume", name)
        assert locks == [True]
        locks.clear()
        await word(desk, "abandon", name)
        assert locks[:4] == [False, True, True, True]
        await desk.change(cell.servers, {"vm_state": "active"}, id="s")
        begun = await desk.begun("moving")
        locks.clear()
        await desk.journal.read(lambda tx: require_forward(tx, begun.op.id))
        await word(desk, "cancel", begun.op.id)
        assert locks[:2] == [True, True]

    play(story)


def test_nor_what_somebody_is_trying(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")
        await desk.change(steps, {"state": "taken", "worker": "me"}, operation_id=name, open=1)
        with pytest.raises(Refused, match="a conductor has claim at this moment"):
            await word(desk, "abandon", name)

    play(story)


def test_nor_what_somebody_has_begun_to_try_since_it_was_looked_at(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "moving")

        async def meanwhile(*_: Any) -> str:
            await desk.change(steps, {"state": "taken", "worker": "me"}, operation_id=name, open=1)
            return "[]"

        monkeypatch.setattr(abandoning, "_held", meanwhile)
        assert await refusal(word(desk, "abandon", name)) == "being_tried"
        assert await desk.all(interventions) == []

    play(story)


def test_nor_the_copy_of_a_host_without_a_record(play: Any) -> None:
    async def story(desk: Desk) -> None:
        name = await stuck(desk, "removing")
        await desk.journal.write(lambda tx: rows.remove(tx, cell.hosts, name="host1"))
        assert await refusal(word(desk, "abandon", name)) == "may_run"

    play(story)


def test_an_operation_of_control_is_abandoned_without_a_server(play: Any) -> None:
    async def story(desk: Desk) -> None:
        control = desk.engine.world.db.control

        async def on_mine(*_: Any) -> None: ...

        desk.engine.on_mine = on_mine
        born = {"id": "o", "server_id": "s", "turn": 5, "ordinal": 0, "params": {}, "facts": MovedFacts()}
        newborn = Newborn(kind="placing", cause=CAUSE, sealed="", is_mine=True, **born)  # type: ignore[arg-type]
        begun = await control.write(lambda tx: begin_operation(desk.engine, tx, control, newborn))
        await conclude(desk.engine, control, "o", begun.op.ordinal, Outcome(problem=FINAL))
        await abandon(desk.engine, control, "o", CAUSE, "enough")
        (op,) = await read(desk.engine, "control", operations)
        assert op["state"] == "failed"

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
            with pytest.raises(Refused, match="host1 has remove" if state == "taken" else "host1 may still") as refused:
                await word(desk, "abandon", name)
            assert refused.value.code == code
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
        assert (await desk.server())["name"].startswith("undone, MovedFacts: "), "it sees the facts of its owner"

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
        assert error.count("give was abandoned by u") == error.count("remove was abandoned by u") == 1

    play(story)
