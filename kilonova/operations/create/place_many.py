"""Place many: the servers of one request find their hosts together, all of them or none.

select all -> claim all in one transaction -> one `place` per server goes on from there, independently
If there is no capacity for all, or the request is cancelled, everything is released, and each `place` buries its server
with the reason. A server that is deleted meanwhile is left out; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kilonova.domain.errors import NoValidHost
from kilonova.domain.params import ManyParams, SpecOfMany
from kilonova.engine.context import Context, Newborn
from kilonova.engine.model import CONTROL, FOREVER, Operation, Step
from kilonova.operations.facts import CreateFacts, FailedChoice, HostChoice, ManyFacts
from kilonova.operations.steps.claim import candidate_of, claim_ended, claimed_by_name, refused
from kilonova.operations.steps.group import group_of
from kilonova.operations.steps.select import candidates, request_for, unless_away, wait_for_answers
from kilonova.placement import claims
from kilonova.placement.batch import BatchMember, claim_many
from kilonova.placement.claims import Claimed, NotClaimed
from kilonova.scheduler.verdict import Decision
from kilonova.schema.tables import control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.world import Tx

ManyContext = Context[ManyFacts, ManyParams]
FIRST_TURN = 1


async def select_hosts(ctx: ManyContext) -> None:
    assert ctx.scheduler is not None
    cells = ctx.world.db.destinations()
    request = request_for(ctx, ctx.params.flavor, {}, ctx.params.host, await group_of(ctx))
    requests = [msgspec.structs.replace(request, server=one.server_id) for one in ctx.params.servers]
    attempts = ctx.settings.scheduler.max_attempts
    asking = ctx.scheduler.place_many(requests, cells, alternates=attempts - 1, rehearsing=ctx.rehearsing)
    placings = await unless_away(ctx, asking)
    last = placings[-1]
    if last.decision.chosen is None:
        await wait_for_answers(ctx, last.decision)
        raise _no_room(last.decision, len(requests), len(placings) - 1)
    ids = [one.server_id for one in ctx.params.servers]
    by_server = dict(zip(ids, placings, strict=True))
    ctx.facts.choices = {id_: candidates(one, ctx.params.flavor) for id_, one in by_server.items()}
    ctx.facts.decisions = {id_: msgspec.to_builtins(one.decision) for id_, one in by_server.items()}


def _no_room(last: Decision, count: int, fitting: int) -> NoValidHost:
    decision = msgspec.to_builtins(last)
    if fitting:  # help for the next server alone does not help all of them
        fewer = f"at most {fitting} servers in one request"
        decision |= {"changes": [fewer], "largest": fewer, "shortage": f"no room for {count} servers at once"}
    why = f"No valid host was found for {count} servers at once: {fitting} would fit."
    return NoValidHost(f"{why} {last.sentence()}", details={"decision": decision})


async def claim_hosts(ctx: ManyContext) -> None:
    members = [
        BatchMember(
            ctx.fence_of(server, FIRST_TURN),
            tuple(candidate_of(choice, ctx.params.flavor) for choice in ctx.facts.choices[server]),
        )
        for server in ctx.facts.choices
    ]
    outcomes = await claim_many(
        ctx.world.db.placement,
        members,
        project=ctx.params.project_id,
        user=ctx.params.user_id,
        group=await group_of(ctx),
    )
    claim_ended(ctx, outcomes)
    places: dict[str, HostChoice] = {}
    for server, outcome in outcomes.items():
        if isinstance(outcome, NotClaimed):
            raise refused(outcome, ctx.facts.choices[server], f" for {len(members)} servers at once")
        places[server] = _taken(ctx, server, outcome)
    ctx.facts.places = places


def _taken(ctx: ManyContext, server: str, outcome: Claimed) -> HostChoice:
    return next(choice for choice in ctx.facts.choices[server] if choice.provider == outcome.provider)


async def release_hosts(ctx: ManyContext) -> None:
    for one in ctx.params.servers:
        fence = ctx.fence_of(one.server_id, FIRST_TURN)
        await claims.release(ctx.world.db.placement, fence, [one.server_id])


async def start_placing(ctx: ManyContext) -> None:
    """Begin `place` for each server: from here on each has its own operation."""
    facts = ctx.facts

    def placed(server: str) -> CreateFacts:
        choice = facts.places[server]
        return CreateFacts(
            destination=choice.host,
            cell=choice.cell,
            claimed=claimed_by_name(choice),
            candidates=facts.choices[server],
            decision=facts.decisions[server],
        )

    facts.begun = await _begin(ctx, placed, [one for one in ctx.params.servers if one.server_id in facts.places])


async def start_burying(ctx: ManyContext) -> None:
    problem = ctx.problem
    assert problem is not None
    refusal = FailedChoice(code=problem.code, message=problem.message, details=problem.details)
    ctx.facts.begun = await _begin(ctx, lambda server: CreateFacts(refused=refusal), ctx.params.servers)


async def _begin(ctx: ManyContext, facts: Callable[[str], CreateFacts], servers: Sequence[SpecOfMany]) -> int:
    """Begin the operations under the ids that the request got, so that repeating it is harmless; not for servers that
    were deleted meanwhile."""
    begin, wake = ctx.begin, ctx.wake
    assert begin is not None

    async def body(tx: Tx) -> list[str]:
        begun = []
        for one in servers:
            child, server = one.operation_id, one.server_id
            if await rows.fetch(tx, operations, id=child) is not None:
                begun.append(child)
            elif await rows.change(tx, control.build_requests, {"operation_id": child}, server_id=server, turn=1):
                await begin(tx, ctx.journal, _newborn(ctx, one, facts(server)))
                begun.append(child)
        return begun

    begun = await ctx.journal.write(body)
    if wake is not None:
        for child in begun:
            await wake(ctx.journal.name, child)
    return len(begun)


def _newborn(ctx: ManyContext, one: SpecOfMany, facts: CreateFacts) -> Newborn:
    """Return the operation to begin. Its ordinals continue from here: fences compare them."""
    return Newborn(
        kind="place",
        id=one.operation_id,
        server_id=one.server_id,
        turn=FIRST_TURN,
        ordinal=ctx.ordinal,
        params=one.params,
        facts=facts,
        cause=ctx.cause,
        sealed=ctx.sealed,
    )


class PlaceMany(Operation[ManyFacts, ManyParams]):
    facts_type = ManyFacts
    params_type = ManyParams
    name = "place_many"
    task_state = "scheduling"
    again_from = "select_destinations"
    safe_message = "No valid host was found."

    steps = [
        Step("select_destinations", select_hosts, on=CONTROL, plan=True),
        Step("claim", claim_hosts, on=CONTROL, undo=release_hosts, tries_elsewhere=True, claims=True),
        Step(
            "start_placing", start_placing, on=CONTROL, no_return=True, retry=FOREVER, with_secrets=True, only_rows=True
        ),
    ]
    ending = [
        Step("start_burying", start_burying, on=CONTROL, with_secrets=True, only_rows=True),
    ]
