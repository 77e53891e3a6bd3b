"""Return hosts: open them again, and bring home the servers that left them by their last move, if they still fit.

open_hosts (a drain is over; they register again) -> await_open -> plan all servers together -> begin one `relocate`
after the other, each to its home or not at all, a few at a time; servers that a drain has stopped there are started
  -> wait for all -> account: n moved, n started, n failed: why, n impossible: why; which servers do not return, and why
When cancelled, it begins no more children, and the running ones end; the hosts stay open.
"""

from __future__ import annotations

from kilonova.domain.errors import Failed, NotYet
from kilonova.domain.params import HostsParams
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.facts import HostsFacts
from kilonova.operations.whole_hosts.drain_host import open_again, records_of
from kilonova.operations.whole_hosts.plan import ground_of
from kilonova.operations.whole_hosts.return_plan import plan_return
from kilonova.operations.whole_hosts.steps import MOVE_SERVERS, PLAN, HostsContext, note_plan
from kilonova.placement.inventories import is_accepting
from kilonova.store.hosts import judge_all
from kilonova.world import Tx

LOOKED_AT_AGAIN = 1.0  # seconds
LONGEST_RETURN = 600.0  # seconds that a host may take to register and pay its debts


async def open_hosts(ctx: HostsContext) -> None:
    open_again(ctx, [row["name"] for row in await records_of(ctx) if row["draining"]])


async def await_open(ctx: HostsContext) -> None:
    names = ctx.params.names

    async def body(tx: Tx) -> tuple[float, list[str]]:
        states = await judge_all(tx, ctx.settings.default.service_down_time)
        closed = [states[name].sentence for name in names if name in states and not states[name].may_receive]
        return await tx.now(), closed

    now, closed = await ctx.journal.read(body)
    for row in () if closed else await records_of(ctx):
        if not await is_accepting(ctx.world.db.placement, row["provider_id"]):
            closed.append(f"{row['name']} has not registered since it was opened")
    if closed and now - ctx.accepted_at >= LONGEST_RETURN:
        raise Failed("host_closed", f"it is not open after {LONGEST_RETURN:.0f} s: {closed[0]}", final=True)
    if closed:
        raise NotYet(f"its hosts to be open: {closed[0]}", LOOKED_AT_AGAIN)


async def plan_moves(ctx: HostsContext) -> None:
    note_plan(ctx, await plan_return(ground_of(ctx), ctx.params.names))


class ReturnHost(Operation[HostsFacts, HostsParams]):
    facts_type = HostsFacts
    params_type = HostsParams
    name = "return_host"
    safe_message = "The hosts could not be returned."

    steps = [
        Step("open_hosts", open_hosts, on=CONTROL, retry=FOREVER),
        Step("await_open", await_open, on=CONTROL),
        Step(PLAN, plan_moves, on=CONTROL, plan=True, deadline=120.0),
        MOVE_SERVERS,
    ]
