"""Steps that hold or free resources in placement; all fenced by (server, turn, ordinal) (law 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from kilonova.domain.errors import Failed
from kilonova.domain.params import Params
from kilonova.domain.server import Flavor, flavor_from, to_json
from kilonova.engine.context import AnyContext, Context
from kilonova.measures import CONFLICTS
from kilonova.operations.facts import CreateFacts, DeleteFacts, HostChoice, MoveFacts, PlacedFacts, ResizeFacts
from kilonova.operations.steps.group import group_of
from kilonova.placement import claims
from kilonova.placement.claims import Claimed, HostCandidate, NotClaimed


def wanted(ctx: Context[PlacedFacts, Params], flavor: Flavor) -> list[HostCandidate]:
    return [candidate_of(choice, flavor) for choice in ctx.facts.candidates]


def candidate_of(choice: HostChoice, flavor: Flavor) -> HostCandidate:
    parts = dict(choice.allocations or {choice.provider: flavor.resources()})
    return HostCandidate(choice.provider, parts.pop(choice.provider, {}), parts)


async def claim_move(ctx: Context[MoveFacts, Params]) -> None:
    """Claim the destination for the server; what it held until now becomes the migration's."""
    await claim_destination(ctx, claims.claim_move)


async def claim_resize(ctx: Context[ResizeFacts, Params]) -> None:
    """Claim a destination with the new flavor. The old flavor's amounts become the migration's, on the same host
    too."""
    await claim_destination(ctx, claims.claim_move, flavor=flavor_from(ctx.facts.new_flavor))


async def claim_destination(
    ctx: Context[MoveFacts, Params],
    claim: Callable[..., Awaitable[Claimed | NotClaimed]],
    dead_host: str = "",
    flavor: Flavor | None = None,
) -> None:
    """Claim one of the candidates in the way that `claim` shares the books between server and migration. `flavor`:
    where it is not the server's own."""
    outcome = await claim(
        ctx.world.db.placement,
        ctx.fence,
        ctx.facts.migration,
        wanted(ctx, flavor or ctx.row.flavor),
        project=ctx.row.project_id,
        user=ctx.row.user_id,
        group=await group_of(ctx, dead_host),
    )
    note_claimed(ctx, outcome)


def note_claimed(ctx: Context[PlacedFacts, Params], outcome: Claimed | NotClaimed) -> None:
    """Note the candidate that was claimed; all full meanwhile: a fresh query may find others."""
    claim_ended(ctx, [ctx.server_id or ""])
    if isinstance(outcome, NotClaimed):
        raise refused(outcome, ctx.facts.candidates)
    choice = next(one for one in ctx.facts.candidates if one.provider == outcome.provider)
    ctx.facts.destination, ctx.facts.cell, ctx.facts.claimed = choice.host, choice.cell, claimed_by_name(choice)


def claim_ended(ctx: AnyContext, servers: Iterable[str]) -> None:
    """Let the scheduler forget claims that succeeded or failed: placement has the result."""
    if ctx.scheduler is not None:
        ctx.scheduler.claim_ended(servers)


def refused(outcome: NotClaimed, candidates: Sequence[HostChoice], for_whom: str = "") -> Failed:
    CONFLICTS.inc()
    why = outcome.sentence()
    for candidate in candidates:  # people know hosts, not providers
        why = why.replace(f"provider {candidate.provider}", candidate.host)
    return Failed("claim_refused", f"No valid host was found{for_whom}. {why}", elsewhere=True, final=True)


def claimed_by_name(choice: HostChoice) -> str | None:
    """Return the claim for the server's record, by provider name; None: its flavor, on its host's own provider."""
    return to_json(by_name(choice)) if choice.allocations else None


def by_name(choice: HostChoice) -> dict[str, dict[str, int]]:
    """Return a candidate's claim that is more than the plain flavor, by provider name."""
    names = {choice.provider: choice.host, **choice.names}
    return {names[provider]: given for provider, given in choice.allocations.items() if given}


async def release_all(ctx: Context[CreateFacts | DeleteFacts, Params]) -> None:
    """Release all allocations of the server and its migrations."""
    consumers = [ctx.server_id or "", *ctx.facts.consumers_held()]
    ctx.facts.released = (await claims.release(ctx.world.db.placement, ctx.fence, consumers)).rows


async def return_move(ctx: Context[MoveFacts, Params]) -> None:
    """Give the source's share back to the server and free the destination; never refused for capacity."""
    migration = ctx.facts.migration
    if migration:
        await claims.return_move(ctx.world.db.placement, ctx.fence, migration)


async def drop_move(ctx: Context[MoveFacts, Params]) -> None:
    """Release the migration's allocations on the source after a confirm."""
    await claims.drop_move(ctx.world.db.placement, ctx.fence, ctx.facts.migration)
