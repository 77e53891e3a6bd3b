"""The way of a server whose build failed from its cell to cell0: the reverse of law 6, journaled in the cell.

The cell owns the server until its row there is removed: a delete in between is accepted there, takes over, and removes
the row in cell0. Readers follow the mapping. Both rows are hidden: no other operation touches them.
"""

from __future__ import annotations

from kilonova.domain.errors import Superseded
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import ARRIVING, ERROR, LEAVING, SHOWN, Server, to_json
from kilonova.engine.context import Context
from kilonova.engine.course import Problem
from kilonova.engine.model import StepTargets, Target
from kilonova.operations.facts import CreateFacts
from kilonova.operations.steps import history
from kilonova.operations.steps.fenced import FenceKey, write_in_cell
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import findings
from kilonova.store import rows
from kilonova.store.fences import pass_fence, pass_fence_in_control
from kilonova.store.open_stores import CELL0
from kilonova.world import Row, Tx

CreateContext = Context[CreateFacts, ServerSpec]
LEAVES: StepTargets[CreateFacts] = StepTargets("control", lambda facts: [Target("")] if facts.leaves else [])


async def close_server(ctx: CreateContext) -> None:
    """Close the record to its owner, unless something of the server is left on a host or with an operator."""

    async def body(tx: Tx) -> bool:
        of = {"server_id": ctx.server_id}
        left = (await rows.fetch_all(tx, table, **of) for table in (cell.copies, cell.debts))
        return any([bool(remains) async for remains in left]) or bool(await rows.fetch_all(tx, findings, **of, open=1))

    ctx.facts.leaves = not await ctx.journal.read(body)
    if ctx.facts.leaves:
        ctx.set_server(hidden=LEAVING)


async def put_in_cell0(ctx: CreateContext, failure: str, message: str, problem: Problem) -> None:
    """Insert the record, not handed over yet, with its history, the fault and the class of the failure."""
    now = ctx.world.clock.now()

    async def here(tx: Tx) -> tuple[Row | None, history.ActionHistory]:
        return await rows.fetch(tx, cell.servers, id=ctx.server_id), await history.read(tx, ctx)

    server, before = await ctx.journal.read(here)
    if server is None:
        raise Superseded(f"server {ctx.server_id} is no longer in {ctx.journal.name}")
    state = {"vm_state": ERROR, "task_state": None, "operation_id": None, "hidden": ARRIVING, "cell0_failure": failure}
    proof = {"why": "nobody runs it", "by": ctx.operation_id, "left": ctx.journal.name}  # a delete asks there first
    state |= {"runner_proof": to_json(proof)}
    row = {**Server.from_row(server).columns(), **state, "recheck": 0, "updated_at": now}

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        await rows.put_row(tx, cell.servers, row, unless_there=True)
        await history.forget(tx, ctx)  # of an earlier try
        await history.copy(tx, before)
        await history.record_failure(tx, ctx, message, problem, now)

    await write_in_cell(ctx, ctx.world.db.cell(CELL0), body)


async def map_to_cell0(ctx: CreateContext) -> None:
    """Map the server to cell0, and keep the whole request for a retry; then its row here is removed."""
    ids = {"server_id": ctx.server_id}
    spec = {"spec": to_json(ctx.params), "sealed": ctx.sealed or None}

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        here = {**ids, "cell": ctx.journal.name, "queued_for_delete": 0}
        if await rows.change(tx, control.server_mappings, {"cell": CELL0}, **here):
            await rows.change(tx, control.request_specs, spec, **ids)

    await ctx.world.db.control.write(body)

    async def leave(tx: Tx, now: float) -> None:
        await rows.remove(tx, cell.servers, id=ctx.server_id, turn=ctx.turn)
        await history.forget(tx, ctx)

    ctx.in_transaction(leave)


async def open_in_cell0(ctx: CreateContext) -> None:
    """Hand the server over to cell0: nothing of it is in its cell any more. A delete in cell0 may have been first."""

    async def body(tx: Tx) -> None:
        arrived: dict[str, object] = {"id": ctx.server_id, "turn": ctx.turn, "hidden": ARRIVING}
        await rows.change(tx, cell.servers, {"hidden": SHOWN}, **arrived)

    await ctx.world.db.cell(CELL0).write(body)
