"""The end of an operation: the rows of its last transaction."""

from __future__ import annotations

from kilonova.domain.operation import FORWARD
from kilonova.domain.server import ERROR
from kilonova.engine import journal as log
from kilonova.engine import records
from kilonova.engine.context import AnyContext
from kilonova.engine.core import has_servers, load_server
from kilonova.engine.course import ABANDONED, End
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyOperation
from kilonova.engine.secrets import forget
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.world import Store, Tx


async def end_operation(
    tx: Tx,
    journal: Store,
    operation: AnyOperation,
    op: Op,
    end: End,
    ctx: AnyContext,
    now: float,
    was: str,
    ordinal: int,
) -> None:
    """Write the rows of the ending transaction: the server's, the operation's, its action and fault."""
    op.state, op.waiting_for = end.state, None
    if not ctx.server_is_locked:  # its host may have left a report meanwhile (recheck)
        ctx.server = await load_server(tx, journal, op)
    if ctx.server is not None:
        ctx.set_server(task_state=None, operation_id=None)
    if end.state == "done":
        op.course.problem = None  # an earlier attempt's; its step rows keep it
        operation.finish(ctx)
    elif op.course.mode == FORWARD:  # everything but the abandoned step is done
        operation.finish(ctx)
    else:
        ctx.problem = op.course.problem
        operation.finish_undone(ctx)
    if ctx.server is not None and ctx.server.recheck:
        await _look_again(tx, ctx)
    await ctx.apply(tx, now)
    await log.save(tx, op, was, ordinal)
    await forget(tx, op.id)
    problem = op.course.problem
    if problem is not None and problem.code == ABANDONED and has_servers(journal):
        await _whole_or_error(tx, op)
    if end.state != "done" and problem is not None and ctx.server is not None:
        await records.action_failed(tx, op, now)
        if problem.code == ABANDONED:
            await records.fault(tx, op, records.ABANDONED, problem, now)
        elif problem.code != "cancelled":
            await records.fault(tx, op, operation.message_for(problem), problem, now)
        elif ctx.server_changes.get("vm_state") == ERROR:  # a server in ERROR needs a fault that says why
            await records.fault(tx, op, records.CANCELLED, problem, now)


async def _whole_or_error(tx: Tx, op: Op) -> None:
    """Return the state after an incomplete undo: as before only if the copy that may run is whole, else ERROR (law
    17)."""
    row = await rows.fetch(tx, cell.servers, id=op.server_id) if op.server_id else None
    if row is None or row["deleted"]:
        return
    keys = {"server_id": op.server_id, "host": row["runner_host"], "copy": row["runner_copy"], "state": "whole"}
    if row["runner_host"] is None or await rows.fetch(tx, cell.copies, **keys) is None:
        await rows.change(tx, cell.servers, {"vm_state": ERROR}, id=op.server_id, turn=op.turn)


async def _look_again(tx: Tx, ctx: AnyContext) -> None:
    """Let a host that came back meanwhile register again: now that no operation is under way, it may learn what should
    run there."""
    runner = ctx.server_changes.get("runner_host", ctx.row.runner_host)
    ctx.set_server(recheck=0)
    if isinstance(runner, str):
        await raise_epoch(tx, runner)
