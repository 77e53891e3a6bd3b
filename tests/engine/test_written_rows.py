"""What the engine writes about one row is written to no neighbour, which differs in one key of the statement only; and
not to the row itself once it is no longer as it was read."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import KilonovaError, NotYet
from kilonova.engine import accept, debts, findings, records, secrets
from kilonova.engine import journal as log
from kilonova.engine.abandon import resume
from kilonova.engine.build_requests import take_request
from kilonova.engine.children import notify_parent
from kilonova.engine.conclude import _next_turn
from kilonova.engine.context import Context, Newborn
from kilonova.engine.course import Go, Problem
from kilonova.engine.details import edit_details
from kilonova.engine.ending import _whole_or_error
from kilonova.engine.model import Target
from kilonova.engine.restored import _abandon, _abandon_all, _end_reverted
from kilonova.engine.run import postpone
from kilonova.engine.silence import _taken_now
from kilonova.engine.take import _mark_taken
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell, control, journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import (
    CAUSE,
    COPY,
    MOVE,
    NOW,
    OPERATION,
    SERVER,
    STEP,
    Case,
    each_stale,
    engine_of,
    operation,
    play,
    put_around,
    put_itself,
    store_of,
)
from tests.support.neighbours import Watched

STOP = REGISTRY["stop"]


def context(tx: Tx) -> Any:
    of_server = {"server_id": "s", "turn": 5, "server": None, "target": Target("", 0)}
    of_operation = {"operation_id": "o", "kind": "stop", "ordinal": 2, "params": None, "facts": None, "cause": CAUSE}
    return Context(world=engine_of(tx).world, journal=store_of(tx), **of_server, **of_operation)  # type: ignore[arg-type]


def applied(change: Callable[[Any], None]) -> Callable[[Tx], Awaitable[object]]:
    async def act(tx: Tx) -> None:
        ctx = context(tx)
        change(ctx)
        await ctx.apply(tx, NOW)

    return act


async def seize(tx: Tx) -> None:
    subject: Any = SimpleNamespace(server=SimpleNamespace(operation_id="o"))
    await accept._seize(tx, STOP, operation(id="new", turn=6), subject, NOW)


async def next_turn(tx: Tx) -> None:
    ctx: Any = SimpleNamespace()
    await _next_turn(tx, operation(), ctx)


async def mark_taken(tx: Tx) -> None:
    op = operation()
    await _mark_taken(tx, op, STOP.steps[0], STEP, "me")  # type: ignore[arg-type]


async def put_off(tx: Tx) -> None:
    wait = NotYet("an answer", 20.0)
    await postpone(engine_of(tx), store_of(tx), "o", 2, wait, {})


async def abandon_one(tx: Tx) -> None:
    await _abandon(tx, store_of(tx), OPERATION, NOW)  # type: ignore[arg-type]


async def abandon_all(tx: Tx) -> None:
    await _abandon_all(tx, store_of(tx, "control"), NOW)


async def settle(tx: Tx) -> None:
    await findings.settle(store_of(tx), "f", CAUSE, "why", NOW)


async def take_build_request(tx: Tx) -> None:
    request: Any = {"server_id": "s", "operation_id": "p"}
    await take_request(tx, request, "new", STOP, NOW)


TAKEN = {**STEP, "state": "taken", "worker": "other", "taken_at": NOW + 5.0, "host": "host1"}
EVENT = {"operation_id": "o", "event": "e", "server_id": "s", "position": 200, "finished_at": None}
ACTION = {"operation_id": "o", "server_id": "s", "request_id": "r", "action": "stop"}
DEBT = {"host": "host1", "server_id": "s", "copy": 1, "verb": "ensure_absent", "after": "{}", "operation_id": "o"}
FINDING = {"id": "f", "operation_id": "o", "kind": "stop", "step": "plan", "way": "do", "host": "", "open": 1}
ACCEPTED = {**MOVE, "status": "accepted", "open": 0}
CONFIRMING = {**MOVE, "status": "confirming", "operation_id": "before"}
SETTLED = ((journal.findings, {**FINDING, "id": "1", "open": 0}),)
REVERTED = {**MOVE, "status": "reverted", "old_vm_state": "stopped"}
RESIZED = {**SERVER, "vm_state": "resized"}
IN_OPERATION = ((journal.operations, OPERATION),)
OTHER_STEP = {"operation_id": "0", "ordinal": 1}
CASES = [
    Case("seize", cell.servers, SERVER, {"id": "0"}, seize, {"turn": 6, "operation_id": "build"}),
    Case("next turn", cell.servers, {**SERVER, "turn": 5}, {"id": "0"}, next_turn, {"turn": 7}),
    Case(
        "server of a step",
        cell.servers,
        SERVER,
        {"id": "0"},
        applied(lambda ctx: ctx.set_server(power_state=4)),
        {"turn": 6},
    ),
    Case("details", cell.servers, SERVER, {"id": "0"}, lambda tx: edit_details(tx, "s", {"a": 1})),
    Case(
        "not whole",
        cell.servers,
        SERVER,
        {"id": "0"},
        lambda tx: _whole_or_error(tx, operation()),
        {"turn": 6, "deleted": 1},
        ((cell.servers, {**SERVER, "id": "1", "deleted": 1}),),
    ),
    Case(
        "reverted server",
        cell.servers,
        RESIZED,
        {"id": "0"},
        _end_reverted,
        {"vm_state": "error", "deleted": 1},
        ((cell.migrations, REVERTED),),
    ),
    Case("reverted move", cell.migrations, REVERTED, {"status": "migrating", "open": 0}, _end_reverted),
    Case("migration", cell.migrations, MOVE, {"id": "0"}, applied(lambda ctx: ctx.set_migration("m", status="error"))),
    Case(
        "dropped copy",
        cell.copies,
        COPY,
        {"server_id": "0", "host": "host0", "copy": 0},
        applied(lambda ctx: ctx.drop_copy(1, "host1")),
    ),
    Case(
        "planned copy",
        cell.copies,
        COPY,
        {"server_id": "0", "host": "host0", "copy": 0},
        applied(lambda ctx: ctx.forget_planned_copy(1, "host1")),
        {"state": "whole"},
    ),
    Case(
        "debt",
        cell.debts,
        DEBT,
        {"host": "host0", "server_id": "0", "copy": 0, "verb": "ensure_stopped"},
        lambda tx: debts.owe_removal(tx, "host1", "s", 1, "o", NOW, {"a": 1}),
    ),
    Case("action", cell.actions, ACTION, {"operation_id": "0"}, lambda tx: records.action_failed(tx, operation(), NOW)),
    Case(
        "ended event",
        cell.action_events,
        EVENT,
        {"operation_id": "0", "event": "0"},
        lambda tx: records.events_finished(tx, operation(), ["e"], Problem(code="c", message="m"), NOW),
    ),
    Case(
        "interrupted event",
        cell.action_events,
        EVENT,
        {"operation_id": "0"},
        lambda tx: records.interrupted(tx, operation(), "why", NOW),
        {"finished_at": 1.0},
    ),
    Case(
        "operation",
        journal.operations,
        OPERATION,
        {"id": "0"},
        lambda tx: log.save(tx, operation(), "running", 2),
        {"ordinal": 3, "live": 0},
    ),
    Case(
        "abandoned operation",
        journal.operations,
        OPERATION,
        {"id": "0"},
        lambda tx: _abandon(tx, store_of(tx, "control"), OPERATION, NOW),  # type: ignore[arg-type]
    ),
    Case("ended step", journal.steps, STEP, OTHER_STEP, lambda tx: log.end_step(tx, "o", 2, "done")),
    Case("taken step", journal.steps, STEP, OTHER_STEP, mark_taken, {"open": 0}, IN_OPERATION),
    Case("step put off", journal.steps, STEP, OTHER_STEP, put_off, {"open": 0}, IN_OPERATION),
    Case(
        "step taken now",
        journal.steps,
        TAKEN,
        OTHER_STEP,
        lambda tx: _taken_now(engine_of(tx), store_of(tx), TAKEN),  # type: ignore[arg-type]
        {"taken_at": NOW + 6.0, "open": 0},
    ),
    Case(
        "resumed step",
        journal.steps,
        STEP,
        OTHER_STEP,
        lambda tx: resume(engine_of(tx), store_of(tx), "o", CAUSE),
        {"open": 0, "state": "taken"},
        IN_OPERATION,
    ),
    Case(
        "secrets",
        journal.secrets,
        {"operation_id": "o", "sealed": "x"},
        {"operation_id": "0"},
        lambda tx: secrets.forget(tx, "o"),
    ),
    Case(
        "step of a parent",
        journal.steps,
        {**STEP, "state": "taken", "worker": "other"},
        {"operation_id": "0"},
        lambda tx: notify_parent(engine_of(tx), store_of(tx), "o"),
        {"open": 0, "state": "ready"},
    ),
    Case(
        "step of a parent that waits",
        journal.steps,
        {**STEP, "not_before": NOW + 30.0},
        {"operation_id": "0"},
        lambda tx: notify_parent(engine_of(tx), store_of(tx), "o"),
        {"open": 0, "not_before": NOW},
    ),
    Case("live operation", journal.operations, OPERATION, {"live": 0}, abandon_all),
    Case("open step", journal.steps, STEP, {"open": 0}, abandon_all),
    Case("open move", cell.migrations, MOVE, {"operation_id": "0"}, abandon_one, {"open": 0}),
    Case("accepted move", cell.migrations, ACCEPTED, {"operation_id": "0"}, abandon_one, {"status": "done"}),
    Case("confirmed move", cell.migrations, CONFIRMING, {"server_id": "0", "open": 0, "status": "error"}, abandon_one),
    Case("finding", journal.findings, FINDING, {"id": "0"}, settle, {"open": 0}, SETTLED),
    Case(
        "request that is taken",
        control.build_requests,
        {"server_id": "s", "operation_id": "p", "server": "{}"},
        {"server_id": "0"},
        take_build_request,
        database="control",
    ),
]


async def watch(tx: Tx, case: Case, **stale: Any) -> Watched:
    await put_around(tx, case, **stale)
    await put_itself(tx, case, **stale)
    return await Watched.since_now(tx, case.table)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_the_row_itself_is_written(tmp_path: Path, case: Case) -> None:
    async def body(tx: Tx) -> None:
        before = await watch(tx, case)
        await case.act(tx)
        changed = await before.changed(tx)
        assert [{name: row[name] for name in case.row} for row in changed] == [case.row]

    play(tmp_path, body, case.database)


@pytest.mark.parametrize(("case", "column"), each_stale(CASES))
def test_a_row_that_was_changed_meanwhile_is_not_written(tmp_path: Path, case: Case, column: str) -> None:
    async def body(tx: Tx) -> None:
        before = await watch(tx, case, **{column: case.stale[column]})
        with contextlib.suppress(KilonovaError):
            await case.act(tx)
        assert await before.changed(tx) == []

    play(tmp_path, body, case.database)


def test_the_details_that_are_kept_are_its_own(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        for name in ("0", "s"):
            await rows.put(tx, cell.servers, **{**SERVER, "id": name, "details": f'{{"of":"{name}"}}'})
        await edit_details(tx, "s", {"a": 1})
        found = {row["id"]: row["details"] for row in await rows.fetch_all(tx, cell.servers)}
        assert found == {"0": '{"of":"0"}', "s": '{"of":"s","a":1}'}

    play(tmp_path, body)


@pytest.mark.parametrize("turn", [5, 6])
def test_only_the_server_of_an_operation_that_begins_shows_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """And only while it is in the turn of that operation."""
    born = Newborn("build", "new", "s", 5, 3, None, None, CAUSE, "", server=SimpleNamespace())  # type: ignore[arg-type]

    async def stored(*_: Any, **__: Any) -> Go:
        return Go(step="grant_runner", way="do", target=Target("", 0))

    async def body(tx: Tx) -> None:
        for name in ("0", "s"):
            await rows.put(tx, cell.servers, **{**SERVER, "id": name, "turn": turn, "task_state": None})
        await accept.begin_operation(engine_of(tx), tx, store_of(tx), born)
        found = {row["id"]: row["task_state"] for row in await rows.fetch_all(tx, cell.servers)}
        assert found == {"0": None, "s": "networking" if turn == 5 else None}

    monkeypatch.setattr(accept, "store_operation", stored)
    play(tmp_path, body)
