"""Place: the first half of create, journaled in control, until the new server is in a cell (law 5).

select -> claim -> insert the server in its cell, hidden
  -> one control transaction: check the quota again, delete the build request (gone = deleted meanwhile: undo) and set
     the mapping
  -> one cell transaction: unhide, give permission to run, and `build` begins under the same operation id, if the turn
     is unchanged.
If no host fits, or it is not known for too long (law 18), or the quota is exceeded meanwhile, everything is undone, the
named volumes are released, and the server is buried in cell0 with the reason.
At any time exactly one journal owns the server; the API shows both as one operation.
"""

from __future__ import annotations

from dataclasses import replace

from kilonova.domain.errors import Failed
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import ARRIVING, BUILDING, ERROR, Server, to_json
from kilonova.engine.conclude import Next
from kilonova.engine.context import Change, Context, Newborn
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step, Target
from kilonova.engine.model import StepTargets as Where
from kilonova.engine.records import CANCELLED
from kilonova.operations.checks.held import held_in_placement
from kilonova.operations.create.build import NETWORKING, Build, grant_runner
from kilonova.operations.facts import WITH_DEVICES, CreateFacts
from kilonova.operations.steps import history
from kilonova.operations.steps.claim import note_claimed, release_all, wanted
from kilonova.operations.steps.fault import fault_of
from kilonova.operations.steps.fenced import FenceKey, write_in_cell
from kilonova.operations.steps.group import group_of
from kilonova.operations.steps.select import choose
from kilonova.operations.steps.volumes import release_held
from kilonova.placement import claims
from kilonova.quota.check import exceeded
from kilonova.quota.resources import default_limits
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.fences import pass_fence
from kilonova.store.new_server import new_server
from kilonova.store.open_stores import CELL0
from kilonova.world import Store, Tx

CreateContext = Context[CreateFacts, ServerSpec]
SCHEDULING = "scheduling"
NO_VALID_HOST = "no_valid_host"
# The reasons that the owner may read; only administrators see the complete one.
SAFE_MESSAGES = {
    "quota_exceeded": "Quota exceeded.",
    "cancelled": CANCELLED,
    "not_known": "It was not known for too long whether a host fits.",
}

UNPLACED: Where[CreateFacts] = Where("control", lambda facts: [] if facts.destination else [Target("")])
FROM_CELL0: Where[CreateFacts] = Where("control", lambda facts: [Target("")] if facts.from_cell0 else [])
# Nothing to bury when the owner deleted the server meanwhile.
UNLESS_DELETED: Where[CreateFacts] = Where("control", lambda facts: [] if facts.deleted else [Target("")])


async def select_host(ctx: CreateContext) -> None:
    """Choose a host unless `place_many` has; raise its refusal if it found none."""
    if refused := ctx.facts.refused:
        raise Failed(refused.code, refused.message, final=True, details=refused.details)
    await choose(ctx, ctx.params.flavor, ctx.world.db.destinations(), {}, ctx.params.host)


async def leave_cell0(ctx: CreateContext) -> None:
    """Remove a rebuilt server's row of exactly this turn from cell0. Its actions and faults stay there until it is
    in another cell."""

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        await rows.remove(tx, cell.servers, id=ctx.server_id, turn=ctx.turn)

    await write_in_cell(ctx, ctx.world.db.cell(CELL0), body)


async def claim_host(ctx: CreateContext) -> None:
    """Claim the host. `place_many` has claimed it already; from here on this operation must release it."""
    if ctx.facts.destination:
        return
    outcome = await claims.claim(
        ctx.world.db.placement,
        ctx.fence,
        wanted(ctx, ctx.params.flavor),
        project=ctx.params.project_id,
        user=ctx.params.user_id,
        group=await group_of(ctx),
    )
    note_claimed(ctx, outcome)


async def insert_server(ctx: CreateContext) -> None:
    """Insert the server into its cell, hidden and without steps; the API still shows the build request."""
    facts = ctx.facts

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        await rows.put_row(tx, cell.servers, _hidden_server(ctx).columns(), unless_there=True)

    await write_in_cell(ctx, ctx.world.db.cell(facts.cell), body)


async def remove_server(ctx: CreateContext) -> None:
    """Remove the hidden row of this turn."""
    name = ctx.facts.cell

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        await rows.remove(tx, cell.servers, id=ctx.server_id, turn=ctx.turn, hidden=ARRIVING)

    if name:
        await write_in_cell(ctx, ctx.world.db.cell(name), body)


async def map_to_cell(ctx: CreateContext) -> None:
    """Map the server to its cell. A delete removes the build request, too: the first of the two has the server."""
    ctx.in_transaction(await _recheck_quota(ctx))
    ctx.in_transaction(_take_build_request(ctx, ctx.facts.cell))


async def _recheck_quota(ctx: CreateContext) -> Change:
    """Check the quota again: others may have used it up since the request was accepted. Above it, everything is
    released (Nova leaks it)."""
    project, user = ctx.params.project_id, ctx.params.user_id
    held = await held_in_placement(ctx.world.db.placement, ctx.settings.quota, project, user)

    async def check(tx: Tx, now: float) -> None:
        over = await exceeded(tx, project, {}, user=user, defaults=default_limits(ctx.settings.quota), held=held)
        if over:
            raise Failed("quota_exceeded", f"Quota exceeded: {'; '.join(over)}", final=True)

    return check


def _take_build_request(ctx: CreateContext, to_cell: str) -> Change:
    async def change(tx: Tx, now: float) -> None:
        if not await rows.remove(tx, control.build_requests, server_id=ctx.server_id, turn=ctx.turn):
            raise Failed("deleted_meanwhile", "the server was deleted while it was being placed", final=True)
        await rows.change(tx, control.server_mappings, {"cell": to_cell}, server_id=ctx.server_id)

    return change


async def hand_over(ctx: CreateContext) -> None:
    """Hand the server over to `build`, which owns it from this commit on. A delete in between has raised the turn and
    wins."""
    before = await history.left_in_cell0(ctx) if ctx.facts.from_cell0 else None
    journal = ctx.world.db.cell(ctx.facts.cell)
    begun: Next | None = None

    async def body(tx: Tx, fence: FenceKey) -> bool:
        nonlocal begun
        if await rows.fetch(tx, operations, id=ctx.operation_id) is not None:
            begun = await ctx.find_begun(tx, journal, ctx.operation_id) if ctx.find_begun is not None else None
            return True
        await pass_fence(tx, *fence)
        if await rows.fetch(tx, cell.servers, id=ctx.server_id) is None:  # its cell was lost since (law 15)
            await rows.put_row(tx, cell.servers, _hidden_server(ctx).columns())
        row = await rows.fetch(tx, cell.servers, lock=True, id=ctx.server_id, turn=ctx.turn, deleted=0)
        if row is None:
            return False
        if before is not None:
            await history.carry(ctx, tx, before)
        begun = await _begin_build(ctx, tx, journal, Server.from_row(row))
        return True

    handed_over = await write_in_cell(ctx, journal, body)
    if begun is not None and ctx.pass_on is not None:
        await ctx.pass_on(journal, begun)
    elif ctx.wake is not None:  # another worker did it before, and may have died after that
        await ctx.wake(journal.name, ctx.operation_id)
    if before is not None and handed_over:
        await history.clear_cell0(ctx)
    ctx.facts.handed_over = handed_over


async def _begin_build(ctx: CreateContext, tx: Tx, journal: Store, server: Server) -> Next:
    """Begin `build` under the same id, with the next ordinals: fences compare them. It takes over this operation's
    claim.

    No host has run the server yet, so permission to run is given here, without a step (law 3).
    """
    facts = CreateFacts(
        destination=ctx.facts.destination,
        claimed=ctx.facts.claimed,
        copy=ctx.turn,
        cell=ctx.facts.cell,
        ports=bool(ctx.params.networks),
        devices=bool(ctx.params.volumes),
    )
    now = ctx.world.clock.now()
    granted = replace(ctx, journal=journal, server=server, facts=facts, changes=[], server_changes={})
    await grant_runner(granted)
    granted.set_server(hidden=0, operation_id=ctx.operation_id, task_state=NETWORKING)
    await granted.apply(tx, now)
    born = Newborn(
        kind=Build.name,
        id=ctx.operation_id,
        server_id=ctx.server_id or "",
        turn=ctx.turn,
        ordinal=ctx.ordinal,
        params=ctx.params,
        facts=facts,
        cause=ctx.cause,
        sealed=ctx.sealed,
        has_action=bool(ctx.facts.from_cell0),
        begun=("claim", "grant_runner"),
        server=granted.changed_server,
        is_mine=True,
    )
    assert ctx.begin is not None
    return await ctx.begin(tx, journal, born)


async def bury(ctx: CreateContext) -> None:
    """Put the server into cell0 in ERROR, with the reason and the class of failure that decides whether it may be
    rebuilt."""
    problem = ctx.problem
    assert problem is not None
    if problem.code == "deleted_meanwhile":
        ctx.facts.deleted = True
        return
    failure = NO_VALID_HOST if problem.code in ("no_valid_host", "claim_refused") else problem.code

    async def body(tx: Tx, fence: FenceKey) -> None:
        await pass_fence(tx, *fence)
        row = _server(ctx, vm_state=ERROR, cell0_failure=failure).columns()
        del row["turn_floor"], row["unsettled"]  # it may be there already, restored (law 15)
        if not await rows.change(tx, cell.servers, row, id=ctx.server_id, turn=ctx.turn):  # it may not have left yet
            await rows.put_row(tx, cell.servers, row, unless_there=True)
        await history.record_burial(ctx, tx, fault_of(problem, SAFE_MESSAGES.get(failure, "No valid host was found.")))

    await write_in_cell(ctx, ctx.world.db.cell(CELL0), body)
    ctx.facts.buried = failure


async def map_to_cell0(ctx: CreateContext) -> None:
    """Map the server to cell0. If the owner deleted it meanwhile, the delete has fenced the row in cell0 and removes
    it.

    The whole request is kept with its request spec, the secrets still encrypted, for another attempt.
    """
    ctx.in_transaction(_take_build_request(ctx, CELL0))
    columns = {"spec": to_json(ctx.params), "sealed": ctx.sealed or None}

    async def keep(tx: Tx, now: float) -> None:
        await rows.change(tx, control.request_specs, columns, server_id=ctx.server_id)

    ctx.in_transaction(keep)


def _hidden_server(ctx: CreateContext) -> Server:
    return _server(ctx, vm_state=BUILDING, task_state=SCHEDULING, hidden=ARRIVING)


def _server(ctx: CreateContext, **state: str | int | None) -> Server:
    return new_server(ctx.server_id or "", ctx.turn, ctx.params, **state)


class PlaceServer(Operation[CreateFacts, ServerSpec]):
    facts_type = CreateFacts
    params_type = ServerSpec
    name = "place"
    task_state = SCHEDULING
    again_from = "select_destinations"
    safe_message = "No valid host was found."
    task = "build_instances"

    steps = [
        Step("select_destinations", select_host, on=UNPLACED, plan=True),
        Step("leave_cell0", leave_cell0, on=FROM_CELL0),
        Step("claim", claim_host, on=CONTROL, undo=release_all, tries_elsewhere=True, claims=True),
        Step("insert_server", insert_server, on=CONTROL, undo=remove_server, only_rows=True),
        Step("map_server", map_to_cell, on=CONTROL),
        Step("hand_over", hand_over, on=CONTROL, no_return=True, retry=FOREVER, with_secrets=True, only_rows=True),
    ]
    ending = [
        Step("release_volumes", release_held, on=WITH_DEVICES),
        Step("bury_in_cell0", bury, on=CONTROL, only_rows=True),
        Step("map_to_cell0", map_to_cell0, on=UNLESS_DELETED, with_secrets=True, only_rows=True),
    ]
