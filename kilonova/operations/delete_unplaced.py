"""Delete a server that is not in a cell yet: its build request is the race token with `place`.

Accepting removes the build request and supersedes `place` in one control transaction (engine/submit.py); then
release the volumes that it named -> release the claim -> remove what `place` may have inserted, in the cell that it had
reached -> the mapping is removed.
Every write has the higher turn, so a stalled `place` that wakes up later changes nothing. An unreachable cell matters
only if it is that one.
"""

from __future__ import annotations

from kilonova.domain.params import Params, ServerSpec
from kilonova.engine.context import Context
from kilonova.engine.model import CONTROL, FOREVER, Notification, Operation, Step
from kilonova.operations.facts import WITH_DEVICES, DeleteFacts
from kilonova.operations.steps import history
from kilonova.operations.steps.claim import release_all
from kilonova.operations.steps.fenced import FenceKey, write_in_cell
from kilonova.operations.steps.volumes import release_held
from kilonova.quota.usage import unmap_server
from kilonova.schema.tables import cell, control
from kilonova.services.compute.server_groups import leave
from kilonova.store import rows
from kilonova.store.fences import pass_fence
from kilonova.world import Tx

DeleteContext = Context[DeleteFacts, Params]


async def remove_rows(ctx: DeleteContext) -> None:
    """Remove the rows, and fence the server in those cells, so that nothing of an older turn appears there
    afterwards."""

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        row = await rows.fetch(tx, cell.servers, id=ctx.server_id)
        if row is not None and row["turn"] < ctx.turn:
            await rows.remove(tx, cell.servers, id=ctx.server_id)
            if row["cell0_failure"] is not None and row["hidden"]:  # it came with its history, which is in its cell too
                await history.forget(tx, ctx)

    cells = ctx.world.db.cells() if ctx.facts.cells is None else ctx.facts.cells
    for name in cells:
        await write_in_cell(ctx, ctx.world.db.cell(name), body)


class DeleteUnplaced(Operation[DeleteFacts, Params]):
    facts_type = DeleteFacts
    params_type = Params
    name = "delete_unplaced"
    action = "delete"
    inherits = False
    notifications = (Notification("delete", sender="api"),)

    def requested_server(self, facts: DeleteFacts, params: Params) -> ServerSpec | None:
        return facts.build_request

    def finish(self, ctx: DeleteContext) -> None:
        async def unmap(tx: Tx, now: float) -> None:
            await unmap_server(tx, ctx.server_id or "")
            await leave(tx, ctx.server_id or "")
            await rows.remove(tx, control.request_specs, server_id=ctx.server_id)

        ctx.in_transaction(unmap)

    steps = [
        Step("release_volumes", release_held, on=WITH_DEVICES, retry=FOREVER),
        Step("release_claims", release_all, on=CONTROL, retry=FOREVER, claims=True),
        Step("remove_rows", remove_rows, on=CONTROL, retry=FOREVER, only_rows=True),
    ]
