"""The common steps of operations about whole hosts: begin the planned servers, a few at a time per destination, wait
for all, and write the account.

Each server has one child operation, under an id made from its parent's and the server's: asking twice is harmless.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.errors import Failed, NotYet, Refused
from kilonova.domain.host import HostState
from kilonova.domain.json import JsonObject, as_object, as_text, json_object
from kilonova.domain.params import HostsParams, MoveParams, Params
from kilonova.domain.whole_hosts import REFUSE, HostPlan, PlannedMove
from kilonova.engine.context import Context
from kilonova.engine.model import CONTROL, FOREVER, Step
from kilonova.operations.facts import HostsFacts
from kilonova.operations.steps.select import age_of
from kilonova.operations.whole_hosts.plan import UNHEARD, plan_from
from kilonova.schema.tables.journal import operations, steps
from kilonova.store.hosts import judge_host
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

HostsContext = Context[HostsFacts, HostsParams]
PLAN = "plan_moves"
LOOKED_AT_AGAIN = 5.0  # seconds; a child that ends makes it look soon
TOGETHER = 16  # children that are begun at a time: stores commit those that come together as one
SELECTION = ("rebuild_server", "cold_migrate")  # the steps of a child that choose its host
NOUNS = {"evacuate_host": "evacuations"}  # the name of its children; else moves
COUNTED = {"stop": "stopped", "start": "started"}  # in the account; else moved
CHILDREN = Sql(
    select(*operations.c["id", "server_id", "state", "live", "error", "destination"])
    .where(operations.c.parent_id == bindparam("parent"))
    .order_by(operations.c.server_id)
)
PLANNED = Sql(
    select(steps.c.result)
    .where(steps.c.operation_id == bindparam("parent"), steps.c.name == PLAN, steps.c.state == "done")
    .order_by(steps.c.ordinal.desc())
    .limit(1)
)
_CHOSEN = Sql(
    select(steps.c.result)
    .where(steps.c.operation_id == bindparam("child"), in_list(steps.c.name, "names"), steps.c.state == "done")
    .order_by(steps.c.ordinal)
    .limit(1)
)


def child_id(parent: str, server: str) -> str:
    return str(uuid.uuid5(uuid.UUID(parent), server))


def child_params(params: HostsParams, move: PlannedMove, *, is_bound: bool) -> Params:
    """`is_bound`: the server goes there or nowhere; else the planned host is a preference."""
    if move.do in COUNTED:
        return Params()
    unfenced, host = params.accept_unfenced, move.to or None
    if is_bound:
        return MoveParams(child=True, host=host, accept_unfenced=unfenced)
    return MoveParams(child=True, planned=move.to, accept_unfenced=unfenced)


def misfit_sentence(plan: HostPlan) -> str:
    """Return a sentence with the first misfit; a list of all would be too long to read."""
    server, misfit = next(iter(plan.misfits.items()))
    total = len(plan.misfits) + len(plan.moves)
    others = "; a dry run shows the others" if len(plan.misfits) > 1 else ""
    text = f"{len(plan.misfits)} of {total} servers fit nowhere, so nothing was moved (on_misfit)"
    return f"{text}. {server}: {misfit.why}{others}"


async def move_servers(ctx: HostsContext) -> None:
    """Begin the children that may begin now; return when no child is left.

    A server that may not be moved now goes into the account and does not fail the whole operation. A busy server of a
    living host is retried, and so is one whose host may be alive, as long as the operation waits for unknown hosts (law
    18).
    """
    plan, children = await _standing(ctx)
    unheard: set[str] = set()
    begun = {child["server_id"]: child for child in children}
    refused = dict(ctx.facts.refused)
    left = [move for move in plan.moves if move.server not in begun and move.server not in refused]
    if left and not await _is_late(ctx):
        ready = _ready(left, begun, refused, plan.moves, ctx.settings.conductor.evacuations_per_destination)
        new = await _begin(ctx, ready, refused, unheard, plan.operation)
        left = [move for move in left if move.server not in new and move.server not in refused]
        plan, children = await _standing(ctx)
    elif left:
        left = []
    live = sum(child["live"] for child in children)
    if live or left:
        total = len(children) + len(left)
        sentence = f"{live + len(left)} of {total} {NOUNS.get(plan.operation, 'moves')} to end"
        unknown = f"; it is not known whether {' and '.join(sorted(unheard))} answers" if unheard else ""
        ctx.facts.refused = refused
        raise NotYet(sentence + unknown, LOOKED_AT_AGAIN, keeps_facts=True)
    ctx.facts.refused = refused
    ctx.facts.account = await _account(ctx, plan, children, refused, "the deadline was over")


async def _standing(ctx: HostsContext) -> tuple[HostPlan, list[Row]]:
    async def body(tx: Tx) -> tuple[Row | None, list[Row]]:
        return await tx.one(PLANNED, parent=ctx.operation_id), list(await tx.all(CHILDREN, parent=ctx.operation_id))

    row, children = await ctx.journal.read(body)
    return plan_from(row["result"] if row is not None else None), children


async def _is_late(ctx: HostsContext) -> bool:
    deadline = ctx.params.deadline
    return deadline is not None and await age_of(ctx) >= deadline


def _ready(
    left: Sequence[PlannedMove],
    begun: Mapping[str, Row],
    refused: Mapping[str, str],
    moves: Sequence[PlannedMove],
    limit: int,
) -> list[PlannedMove]:
    """Return, in the order of the plan, the moves whose destination is below the limit and whose predecessors have
    ended."""
    planned = {move.server: move.to for move in moves}
    running = Counter(planned.get(child["server_id"], "") for child in begun.values() if child["live"])
    ready = []
    for move in left:
        waits = any(
            server in planned and server not in refused and (server not in begun or begun[server]["live"])
            for server in move.after
        )
        if waits or (move.to and running[move.to] >= limit):
            continue
        running[move.to] += 1
        ready.append(move)
    return ready


async def _begin(
    ctx: HostsContext, moves: Sequence[PlannedMove], refused: dict[str, str], unheard: set[str], operation: str
) -> set[str]:
    """Begin children and return their servers. Add to `refused`, and add hosts that do not answer to `unheard`."""
    begun: set[str] = set()

    async def begin(move: PlannedMove) -> None:
        assert ctx.ask is not None
        server, kind = move.server, move.do
        params = child_params(ctx.params, move, is_bound=operation == "return_host")
        try:
            accepted = await ctx.ask(ctx.journal, kind, server, child_id(ctx.operation_id, server), params)
            if accepted.joined:  # another operation: it is not among the children, so this one would not wait for it
                raise Refused("busy", f"it is being evacuated already: operation {accepted.operation_id}")
            begun.add(server)
        except Refused as why:
            if why.code in UNHEARD and await _may_answer(ctx, move.source):
                unheard.add(move.source)
            elif why.code != "busy" or kind == "evacuate":
                refused[server] = why.message

    for first in range(0, len(moves), TOGETHER):
        ended = await asyncio.gather(*map(begin, moves[first : first + TOGETHER]), return_exceptions=True)
        for problem in filter(None, ended):
            raise problem
    return begun


async def _may_answer(ctx: HostsContext, host: str) -> bool:
    """Return whether the host may still answer: it is not known to be dead, and the wait is not over."""

    async def body(tx: Tx) -> HostState | None:
        return await judge_host(tx, host, ctx.settings.default.service_down_time)

    state = await ctx.journal.read(body)
    return state is not None and state.status != "down" and await age_of(ctx) < ctx.settings.scheduler.unknown_wait


async def await_begun(ctx: HostsContext) -> None:
    """Wait for the running children after a cancel; no child begins any more."""
    plan, children = await _standing(ctx)
    live = sum(child["live"] for child in children)
    if live:
        noun = NOUNS.get(plan.operation, "moves")
        raise NotYet(f"{live} of {len(children)} {noun} to end", LOOKED_AT_AGAIN)
    ctx.facts.account = await _account(ctx, plan, children, ctx.facts.refused, "it was cancelled before")


async def _account(
    ctx: HostsContext, plan: HostPlan, children: Sequence[Row], refused: Mapping[str, str], not_begun: str
) -> JsonObject:
    failed = {
        child["server_id"]: as_text(json_object(child["error"]).get("message")) or child["state"]
        for child in children
        if child["state"] != "done"
    }
    impossible = {server: misfit.why for server, misfit in plan.misfits.items()}
    begun = {child["server_id"] for child in children}
    left = [move.server for move in plan.moves if move.server not in begun | refused.keys()]
    done = [child["server_id"] for child in children if child["server_id"] not in failed]
    doing = {move.server: move.do for move in plan.moves}
    counts = Counter(COUNTED.get(doing.get(server, ""), "moved") for server in done)
    account = {
        "moved": counts["moved"],
        **{outcome: counts[outcome] for outcome in COUNTED.values() if counts[outcome]},
        "failed": failed,
        "impossible": impossible,
        "refused": {**plan.refused, **refused},
        "spared": plan.spared,
        "not_begun": dict.fromkeys(left, not_begun),
        "elsewhere": await _elsewhere(ctx, plan, children),
        "proof": msgspec.to_builtins(plan.hosts),
    }
    return {**account, "sentence": account_sentence(account)}


def account_sentence(account: JsonObject) -> str:
    parts = [f"{account['moved']} moved"]
    parts += [f"{account[outcome]} {outcome}" for outcome in COUNTED.values() if account.get(outcome)]
    for outcome in ("failed", "impossible", "refused", "spared", "not_begun"):
        servers = as_object(account[outcome])
        why = as_text(next(iter(servers.values()), "")).rstrip(".")
        if servers or outcome in ("failed", "impossible"):
            parts.append(f"{len(servers)} {outcome.replace('_', ' ')}" + (f": {why}" if why else ""))
    return "; ".join(parts)


async def _elsewhere(ctx: HostsContext, plan: HostPlan, children: Sequence[Row]) -> dict[str, str]:
    """Servers that went to another host than planned, and why."""
    planned = {move.server: move.to for move in plan.moves}
    others = [
        child
        for child in children
        if child["state"] == "done" and planned.get(child["server_id"]) not in (None, "", child["destination"])
    ]

    async def body(tx: Tx) -> dict[str, Row | None]:
        return {child["id"]: await tx.one(_CHOSEN, child=child["id"], names=[*SELECTION]) for child in others}

    chosen = await ctx.journal.read(body) if others else {}
    missed = {}
    for child in others:
        row = chosen[child["id"]]
        decision = as_object(json_object(row["result"]).get("decision")) if row is not None else {}
        why = as_text(decision.get("missed")) or f"{planned[child['server_id']]} was planned and did not take it"
        missed[child["server_id"]] = f"it went to {child['destination']}; {why}"
    return missed


def note_plan(ctx: HostsContext, plan: HostPlan) -> None:
    """Keep the plan with its step. Raise `Failed` where a server fits nowhere and that shall stop everything."""
    document = msgspec.to_builtins(plan)
    if plan.misfits and ctx.params.on_misfit == REFUSE:
        raise Failed("misfits", misfit_sentence(plan), final=True, details={"plan": document})
    ctx.documents["plan"] = document


MOVE_SERVERS: Step[HostsFacts, HostsParams] = Step(
    "move_servers",
    move_servers,
    on=CONTROL,
    undo=await_begun,
    retry=FOREVER,
    deadline=600.0,
)
