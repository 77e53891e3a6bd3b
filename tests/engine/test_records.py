"""What os-instance-actions shows of an operation: its action, the events of its steps, the fault of its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.engine import records
from kilonova.engine.course import Problem
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import CAUSE, NOW, operation, play
from tests.support.neighbours import contents, zeros

PROBLEM = Problem(code="broken", message="no space", step="copy_disk")
STARTED = {"operation_id": "o", "server_id": "s", "started_at": NOW, "finished_at": None, "result": None}


async def events(tx: Tx, *columns: str) -> list[tuple[Any, ...]]:
    found = sorted(await contents(tx, cell.action_events), key=lambda row: (row["operation_id"], row["position"]))
    return [tuple(row[column] for column in columns) for row in found]


def test_an_action_says_who_asked_for_what(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for name in ("o", "another"):
            await records.action_started(tx, operation(id=name), "reboot", NOW)
        await records.action_failed(tx, operation(), NOW + 5.0)
        one, other = sorted(await contents(tx, cell.actions), key=lambda row: str(row["operation_id"]), reverse=True)
        asked = {"server_id": "s", "request_id": "r", "user_id": CAUSE.user_id, "project_id": CAUSE.project_id}
        asked |= {"action": "reboot", "started_at": NOW}
        for row, said in ((one, ("Error", NOW + 5.0)), (other, (None, NOW))):
            assert {name: row[name] for name in asked} == asked
            assert (row["message"], row["updated_at"]) == said

    play(tmp_path, body)


def test_the_events_of_a_step_begin_with_it_in_their_order(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        await records.events_started(tx, operation(), ("b", "a"), "host1", NOW)
        await records.events_started(tx, operation(ordinal=3), ("c",), "", NOW + 1.0)
        shown = await events(tx, "event", "host", "started_at", "position")
        assert [row[:3] for row in shown] == [("b", "host1", NOW), ("a", "host1", NOW), ("c", None, NOW + 1.0)]
        assert [row[3] for row in shown] == [20, 21, 30]
        assert {row[0] for row in await events(tx, "server_id")} == {"s"}

    play(tmp_path, body)


def test_a_step_that_is_repeated_opens_its_events_again(tmp_path: Path) -> None:
    """They began when it was begun first; the host is the one that has it now."""

    async def body(tx: Tx) -> None:
        await records.events_started(tx, operation(), ("a",), "host1", NOW)
        await records.events_finished(tx, operation(), ("a",), PROBLEM, NOW + 1.0)
        assert await events(tx, "result", "details", "finished_at") == [("Error", "no space", NOW + 1.0)]
        await records.events_started(tx, operation(ordinal=3), ("a",), "host2", NOW + 2.0)
        (shown,) = await events(tx, "started_at", "finished_at", "result", "details", "host")
        assert shown == (NOW, None, None, None, "host2")
        await records.events_finished(tx, operation(), ("a",), None, NOW + 3.0)
        assert await events(tx, "result", "details", "finished_at") == [("Success", None, NOW + 3.0)]

    play(tmp_path, body)


async def put_event(tx: Tx, **values: Any) -> None:
    await rows.put(tx, cell.action_events, **zeros(cell.action_events, **STARTED | {"event": "a"} | values))


def test_only_the_events_that_ended_are_closed(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for number, other in enumerate(({}, {"operation_id": "another"}, {"event": "b"})):
            await put_event(tx, position=number, **other)
        await records.events_finished(tx, operation(), ("a",), None, NOW + 1.0)
        shown = await events(tx, "operation_id", "event", "result")
        assert shown == [("another", "a", None), ("o", "a", "Success"), ("o", "b", None)]

    play(tmp_path, body)


@pytest.mark.parametrize("was_open", [True, False])
def test_a_step_that_is_left_closes_its_events_as_errors(tmp_path: Path, was_open: bool) -> None:
    """And the action says so, if the operation left something half done."""

    async def body(tx: Tx) -> None:
        await records.action_started(tx, operation(), "reboot", NOW)
        await put_event(tx, event="ended", position=1, finished_at=NOW, result="Success")
        await put_event(tx, operation_id="another", position=2)
        if was_open:
            await put_event(tx, position=3)
        await records.interrupted(tx, operation(), "why", NOW + 1.0)
        shown = await events(tx, "operation_id", "event", "result", "details", "finished_at")
        left = [("another", "a", None, None, None), ("o", "ended", "Success", None, NOW)]
        assert shown == left + [("o", "a", "Error", "why", NOW + 1.0)] * was_open
        (action,) = await contents(tx, cell.actions)
        assert action["message"] == ("Error" if was_open else None)

    play(tmp_path, body)


@pytest.mark.parametrize(("step", "details"), [("copy_disk", "copy_disk: no space"), ("", "no space")])
def test_a_fault_tells_the_owner_less_than_the_administrator(tmp_path: Path, step: str, details: str) -> None:
    async def body(tx: Tx) -> None:
        problem = Problem(code="broken", message="no space", step=step)
        await records.fault(tx, operation(), "x" * 300, problem, NOW)
        (row,) = await contents(tx, cell.faults)
        shown = {"server_id": "s", "operation_id": "o", "code": 500, "created_at": NOW, "details": details}
        assert {name: row[name] for name in shown} == shown
        assert row["message"] == "x" * records.FAULT_LENGTH

    play(tmp_path, body)
