"""Actions, events and faults of a server in cell0. Written when the server moves to cell0; actions and events are
copied to its cell when it leaves cell0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilonova.domain.params import ServerSpec
from kilonova.engine.context import AnyContext, Context
from kilonova.engine.course import Problem
from kilonova.engine.records import FAULT_LENGTH, event_position
from kilonova.operations.facts import CreateFacts
from kilonova.operations.steps.fault import FaultText
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.open_stores import CELL0
from kilonova.world import Row, Tx

CREATED, REBUILT = "conductor_schedule_and_build_instances", "conductor_rebuild_instance_in_cell0"


@dataclass(frozen=True)
class ActionHistory:
    actions: Sequence[Row]
    events: Sequence[Row]


async def record_burial(ctx: Context[CreateFacts, ServerSpec], tx: Tx, fault: FaultText) -> None:
    """Record the action and the fault that Nova's conductor would write there. A rebuild already has its action
    there."""
    now, event = ctx.world.clock.now(), REBUILT if ctx.facts.from_cell0 else CREATED
    if await rows.fetch(tx, cell.action_events, operation_id=ctx.operation_id, event=event) is not None:
        return
    if not await rows.change(tx, cell.actions, {"updated_at": now, "message": "Error"}, operation_id=ctx.operation_id):
        await rows.put(
            tx,
            cell.actions,
            server_id=ctx.server_id,
            operation_id=ctx.operation_id,
            updated_at=now,
            message="Error",
            request_id=ctx.cause.request_id,
            action="create",
            user_id=ctx.cause.user_id,
            project_id=ctx.cause.project_id,
            started_at=now,
        )
    await _put_event(ctx, tx, event, now, "Error", fault.reason)
    await rows.put(
        tx,
        cell.faults,
        server_id=ctx.server_id,
        operation_id=ctx.operation_id,
        code=500,
        message=fault.message,
        details=fault.details,
        would_fit=fault.would_fit,
        created_at=now,
    )


async def left_in_cell0(ctx: AnyContext) -> ActionHistory:
    return await ctx.world.db.cell(CELL0).read(lambda tx: read(tx, ctx))


async def read(tx: Tx, ctx: AnyContext) -> ActionHistory:
    of = {"server_id": ctx.server_id}
    return ActionHistory(
        await rows.fetch_all(tx, cell.actions, **of), await rows.fetch_all(tx, cell.action_events, **of)
    )


async def carry(ctx: AnyContext, tx: Tx, before: ActionHistory) -> None:
    """Copy the history into the cell that builds the server, without the faults: the server now has a host."""
    await copy(tx, before)
    await _put_event(ctx, tx, REBUILT, ctx.world.clock.now(), "Success", None)


async def copy(tx: Tx, before: ActionHistory) -> None:
    for row in sorted(before.actions, key=lambda row: row["number"]):
        await rows.put(tx, cell.actions, **{name: row[name] for name in row.keys() if name != "number"})  # noqa: SIM118 - not a dict
    for row in before.events:
        await rows.put(tx, cell.action_events, **{name: row[name] for name in row.keys()})  # noqa: SIM118


async def record_failure(tx: Tx, ctx: AnyContext, message: str, problem: Problem, now: float) -> None:
    """Record a failed action and a fault, as the engine does in the operation's own journal."""
    await rows.change(tx, cell.actions, {"message": "Error", "updated_at": now}, operation_id=ctx.operation_id)
    await rows.put(
        tx,
        cell.faults,
        server_id=ctx.server_id,
        operation_id=ctx.operation_id,
        code=500,
        message=message[:FAULT_LENGTH],
        details=f"{problem.step}: {problem.message}" if problem.step else problem.message,
        created_at=now,
    )


async def forget(tx: Tx, ctx: AnyContext) -> None:
    """Remove all of it from this database: it is, or will be, in another one."""
    for table in (cell.actions, cell.action_events, cell.faults):
        await rows.remove(tx, table, server_id=ctx.server_id)


async def clear_cell0(ctx: AnyContext) -> None:
    await ctx.world.db.cell(CELL0).write(lambda tx: forget(tx, ctx))


async def _put_event(ctx: AnyContext, tx: Tx, event: str, now: float, result: str, details: str | None) -> None:
    await rows.put(
        tx,
        cell.action_events,
        server_id=ctx.server_id,
        operation_id=ctx.operation_id,
        event=event,
        position=event_position(ctx.ordinal),
        started_at=now,
        finished_at=now,
        result=result,
        host=None,
        details=details,
    )
