"""Actions, events and faults of a server in cell0: written when it is buried, and taken along when it gets out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kilonova.engine.context import Context
from kilonova.operations.steps.fault import FaultText
from kilonova.store import rows
from kilonova.store.open import CELL0
from kilonova.store.tables import cell
from kilonova.world import Row, Tx

CREATED, REBUILT = "conductor_schedule_and_build_instances", "conductor_rebuild_instance_in_cell0"


@dataclass(frozen=True)
class History:
    actions: Sequence[Row]
    events: Sequence[Row]


async def record_burial(ctx: Context, tx: Tx, fault: FaultText) -> None:
    """The action and the fault that Nova's conductor would write there; a rebuild has its action there already."""
    now, event = ctx.world.clock.now(), _event(ctx)
    ids: dict[str, Any] = {"server_id": ctx.server_id, "operation_id": ctx.operation_id}
    if await rows.fetch(tx, cell.action_events, operation_id=ctx.operation_id, event=event) is not None:
        return
    failed: dict[str, Any] = {"updated_at": now, "message": "Error"}
    if not await rows.change(tx, cell.actions, failed, operation_id=ctx.operation_id):
        await rows.put(
            tx,
            cell.actions,
            **ids,
            **failed,
            request_id=ctx.cause.request_id,
            action="create",
            user_id=ctx.cause.user_id,
            project_id=ctx.cause.project_id,
            started_at=now,
        )
    await _put_event(tx, {**ids, "event": event}, now, "Error", fault.reason)
    await rows.put(tx, cell.faults, **ids, code=500, **fault.columns(), created_at=now)


async def left_in_cell0(ctx: Context) -> History:
    async def body(tx: Tx) -> History:
        of = {"server_id": ctx.server_id}
        return History(await rows.fetch_all(tx, cell.actions, **of), await rows.fetch_all(tx, cell.action_events, **of))

    return await ctx.world.db.cell(CELL0).read(body)


async def carry(ctx: Context, tx: Tx, before: History) -> None:
    """Into the cell where the server is going to be built. Its faults are not those of a server that has a host."""
    for row in sorted(before.actions, key=lambda row: row["number"]):
        await rows.put(tx, cell.actions, **{name: row[name] for name in row.keys() if name != "number"})  # noqa: SIM118 - not a dict
    for row in before.events:
        await rows.put(tx, cell.action_events, **{name: row[name] for name in row.keys()})  # noqa: SIM118
    ids = {"server_id": ctx.server_id, "operation_id": ctx.operation_id, "event": REBUILT}
    await _put_event(tx, ids, ctx.world.clock.now(), "Success", None)


async def clear_cell0(ctx: Context) -> None:
    async def body(tx: Tx) -> None:
        for table in (cell.actions, cell.action_events, cell.faults):
            await rows.remove(tx, table, server_id=ctx.server_id)

    await ctx.world.db.cell(CELL0).write(body)


def _event(ctx: Context) -> str:
    return REBUILT if ctx.facts.get("from_cell0") else CREATED


async def _put_event(tx: Tx, ids: dict[str, Any], now: float, result: str, details: str | None) -> None:
    await rows.put(
        tx, cell.action_events, **ids, started_at=now, finished_at=now, result=result, host=None, details=details
    )
