"""The API's view of an operation: action, events, fault.

The engine writes it from the steps, with Nova's names, so that no operation file repeats them. Only cells have these
tables; `place` in control has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.engine.course import Problem
from kilonova.engine.journal import Op
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx

FAULT_LENGTH = 255
MOST_EVENTS = 10  # of one step
CANCELLED = "The operation was cancelled."
ABANDONED = "The operation was abandoned by an administrator."


async def action_started(tx: Tx, op: Op, action: str, now: float) -> None:
    await rows.put(
        tx,
        cell.actions,
        server_id=op.server_id,
        request_id=op.request_id,
        operation_id=op.id,
        action=action,
        user_id=op.cause.user_id,
        project_id=op.cause.project_id,
        started_at=now,
        updated_at=now,
        message=None,
    )


async def action_failed(tx: Tx, op: Op, now: float) -> None:
    await rows.change(tx, cell.actions, {"message": "Error", "updated_at": now}, operation_id=op.id)


def event_position(ordinal: int, nth: int = 0) -> int:
    """Return the position of a step's nth event. Two events may begin at the same time, and clocks go back."""
    return ordinal * MOST_EVENTS + nth


async def events_started(tx: Tx, op: Op, events: Sequence[str], host: str, now: float) -> None:
    """Open the events of a step. A repeated step keeps its first start and opens its events again."""
    for nth, event in enumerate(events):
        await rows.put_or_change(
            tx,
            cell.action_events,
            ("finished_at", "result", "host", "details"),
            operation_id=op.id,
            event=event,
            server_id=op.server_id,
            position=event_position(op.ordinal, nth),
            started_at=now,
            finished_at=None,
            result=None,
            host=host or None,
            details=None,
        )


async def events_finished(tx: Tx, op: Op, events: Sequence[str], problem: Problem | None, now: float) -> None:
    values = {
        "finished_at": now,
        "result": "Success" if problem is None else "Error",
        "details": None if problem is None else problem.message,
    }
    for event in events:
        await rows.change(tx, cell.action_events, values, operation_id=op.id, event=event)


async def interrupted(tx: Tx, op: Op, why: str, now: float) -> None:
    """Close the open events as errors: the operation leaves its step, and no report of it will follow."""
    values = {"finished_at": now, "result": "Error", "details": why}
    if await rows.change(tx, cell.action_events, values, operation_id=op.id, finished_at=None):
        await action_failed(tx, op, now)


async def fault(tx: Tx, op: Op, safe_message: str, problem: Problem, now: float) -> None:
    await rows.put(
        tx,
        cell.faults,
        server_id=op.server_id,
        operation_id=op.id,
        code=500,
        message=safe_message[:FAULT_LENGTH],
        details=f"{problem.step}: {problem.message}" if problem.step else problem.message,
        created_at=now,
    )
