"""Drain hosts: close them to new servers, then move or stop their servers; they stay closed.

close_hosts (no claim reaches them any more)
  -> await_arrivals (earlier claims have arrived, or have gone elsewhere)
  -> plan all servers together (scheduler/planner.py) -> begin one `relocate` (or `stop`) after the other, a few at a
time per destination -> wait for all -> account: n moved, n failed: why, n impossible: why
When cancelled, it begins no more children, the running ones end, and the hosts are opened again. If a server fits
nowhere, nothing is moved, unless misfits shall be skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kilonova.domain.errors import NotYet
from kilonova.domain.params import HostsParams
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.facts import HostsFacts
from kilonova.operations.steps.select import age_of
from kilonova.operations.whole_hosts.drain_plan import arriving, plan_drain
from kilonova.operations.whole_hosts.plan import ground_of
from kilonova.operations.whole_hosts.steps import MOVE_SERVERS, PLAN, HostsContext, note_plan
from kilonova.placement.inventories import set_accepting
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.world import Row, Tx

LONGEST_ARRIVAL = 120.0  # seconds; slower servers are named in the account
LOOKED_AT_AGAIN = 1.0


async def close_hosts(ctx: HostsContext) -> None:
    """Close the hosts: first in placement, so that no claim slips in between.

    The next step does it once more: a registration that read the record before may have opened a returning host.
    """
    await _close_providers(ctx, await records_of(ctx))

    async def change(tx: Tx, now: float) -> None:
        for name in ctx.params.names:
            await rows.change(tx, cell.hosts, {"draining": 1}, name=name)

    ctx.in_transaction(change)


async def reopen_hosts(ctx: HostsContext) -> None:
    """Open the hosts that were not drained before. They register again, which opens them also if only placement had
    closed them yet."""
    open_again(ctx, [name for name in ctx.params.names if name not in ctx.facts.drained_before])


def open_again(ctx: HostsContext, names: Iterable[str]) -> None:
    async def change(tx: Tx, now: float) -> None:
        for name in names:
            await rows.change(tx, cell.hosts, {"draining": 0}, name=name)
            await raise_epoch(tx, name)

    ctx.in_transaction(change)


async def note_drained(tx: Tx, facts: HostsFacts, names: Sequence[str]) -> None:
    """Note which hosts were drained before, in the transaction that accepts the operation."""
    hosts = [await rows.fetch(tx, cell.hosts, name=name, draining=1) for name in names]
    facts.drained_before = [row["name"] for row in hosts if row is not None]


async def records_of(ctx: HostsContext) -> list[Row]:
    async def body(tx: Tx) -> list[Row]:
        records = [await rows.fetch(tx, cell.hosts, name=name) for name in ctx.params.names]
        return [row for row in records if row is not None]

    return await ctx.journal.read(body)


async def _close_providers(ctx: HostsContext, records: list[Row]) -> None:
    for row in records:
        await set_accepting(ctx.world.db.placement, row["provider_id"], False)


async def await_arrivals(ctx: HostsContext) -> None:
    await _close_providers(ctx, await records_of(ctx))
    coming = await arriving(ground_of(ctx), ctx.params.names)
    if coming and await age_of(ctx) < LONGEST_ARRIVAL:
        raise NotYet(f"{len(coming)} servers that were on their way there, {coming[0]} first", LOOKED_AT_AGAIN)


async def plan_moves(ctx: HostsContext) -> None:
    note_plan(ctx, await plan_drain(ground_of(ctx), ctx.params.names, ctx.params.by))


class DrainHost(Operation[HostsFacts, HostsParams]):
    facts_type = HostsFacts
    params_type = HostsParams
    name = "drain_host"
    safe_message = "The hosts could not be drained."

    steps = [
        Step("close_hosts", close_hosts, on=CONTROL, undo=reopen_hosts),
        Step("await_arrivals", await_arrivals, on=CONTROL, retry=FOREVER),
        Step(PLAN, plan_moves, on=CONTROL, plan=True, deadline=120.0),
        MOVE_SERVERS,
    ]
