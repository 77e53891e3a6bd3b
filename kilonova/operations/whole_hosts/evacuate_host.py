"""Evacuate whole dead hosts: planned once, then one child operation per server, and an account that is stored.

plan all servers together (scheduler/planner.py; the plan stays in the journal) -> begin one `evacuate` after the other
in the order of the plan, a few at a time per destination, under an id made from this operation's and the server's
(asking twice is harmless), each with its planned host as a preference -> wait for all -> account: n moved, n failed:
why, n impossible: why
When cancelled, or after its deadline, it begins no more children; the running ones end, and the account lists them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.params import HostsParams
from kilonova.domain.whole_hosts import Proof
from kilonova.engine.model import CONTROL, FOREVER, Operation, Retired, Step
from kilonova.operations.facts import HostsFacts
from kilonova.operations.whole_hosts.plan import ground_of, plan_evacuation
from kilonova.operations.whole_hosts.steps import MOVE_SERVERS, PLAN, HostsContext, note_plan
from kilonova.store.hosts import judge_all
from kilonova.world import Tx


async def plan_moves(ctx: HostsContext) -> None:
    plan = await plan_evacuation(ground_of(ctx), ctx.params.names, ctx.params.accept_unfenced)
    # What was accepted as a proof stands: a conductor that has just started has not listened for long enough itself.
    note_plan(ctx, msgspec.structs.replace(plan, hosts={**plan.hosts, **ctx.facts.proofs}))


async def note_proofs(tx: Tx, facts: HostsFacts, names: Sequence[str], down_after: float) -> None:
    """Note what proves that the hosts are dead, in the transaction that accepts the operation."""
    states = await judge_all(tx, down_after)
    facts.proofs = {name: Proof.of(states[name]) for name in names}


async def nothing(ctx: HostsContext) -> None:
    """Do nothing. A step of the release before; the next one reads everything again."""


class EvacuateHost(Operation[HostsFacts, HostsParams]):
    facts_type = HostsFacts
    params_type = HostsParams
    name = "evacuate_host"
    version = 2

    steps = [Step(PLAN, plan_moves, on=CONTROL, plan=True, deadline=120.0), MOVE_SERVERS]
    retired = [
        Retired(Step(name, nothing, on=CONTROL, retry=FOREVER), then=PLAN)
        for name in ("list_servers", "start_children", "await_children")
    ]
