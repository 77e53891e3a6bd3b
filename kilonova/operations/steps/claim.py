"""Steps that hold or free resources in placement; all fenced by (server, turn, ordinal) (law 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from kilonova.domain.errors import Failed
from kilonova.domain.server import Flavor, flavor_from, to_json
from kilonova.engine.context import Context
from kilonova.measures import CONFLICTS
from kilonova.operations.steps.group import group_of
from kilonova.placement import claims
from kilonova.placement.claims import Claimed, HostCandidate, NotClaimed


def wanted(ctx: Context, flavor: Flavor) -> list[HostCandidate]:
    return [candidate_of(told, flavor) for told in ctx.facts["candidates"]]


def candidate_of(told: dict[str, Any], flavor: Flavor) -> HostCandidate:
    parts = dict(told.get("allocations") or {told["provider"]: flavor.resources()})
    return HostCandidate(told["provider"], parts.pop(told["provider"], {}), parts)


async def claim_move(ctx: Context) -> dict[str, Any]:
    """Claim the destination for the server; what it held until now becomes the migration's."""
    return await claim_destination(ctx, claims.claim_move)


async def claim_resize(ctx: Context) -> dict[str, Any]:
    """The same with the new flavor; the old one's amounts become the migration's, on the same host too."""
    return await claim_destination(ctx, claims.claim_move, flavor=flavor_from(ctx.facts["new_flavor"]))


async def claim_destination(
    ctx: Context,
    claim: Callable[..., Awaitable[Claimed | NotClaimed]],
    dead_host: str = "",
    flavor: Flavor | None = None,
) -> dict[str, Any]:
    """Claim one of the candidates in the way that `claim` shares the books between server and migration. `flavor`:
    where it is not the server's own."""
    outcome = await claim(
        ctx.world.db.placement,
        ctx.fence,
        ctx.facts["migration"],
        wanted(ctx, flavor or ctx.row.flavor),
        project=ctx.row.project_id,
        user=ctx.row.user_id,
        group=await group_of(ctx, dead_host),
    )
    return taken(ctx, outcome) | {"migration": ctx.facts["migration"]}


def taken(ctx: Context, outcome: Claimed | NotClaimed) -> dict[str, Any]:
    """Facts of the candidate that was claimed; all full meanwhile: a fresh query may find others."""
    claim_ended(ctx, [ctx.server_id or ""])
    if isinstance(outcome, NotClaimed):
        raise refused(outcome, ctx.facts["candidates"])
    found = next(c for c in ctx.facts["candidates"] if c["provider"] == outcome.provider)
    return facts_of(found)


def claim_ended(ctx: Context, servers: Iterable[str]) -> None:
    """Let the scheduler forget claims that succeeded or failed: placement has the result."""
    if ctx.scheduler is not None:
        ctx.scheduler.claim_ended(servers)


def refused(outcome: NotClaimed, candidates: list[dict[str, Any]], for_whom: str = "") -> Failed:
    CONFLICTS.inc()
    why = outcome.sentence()
    for candidate in candidates:  # people know hosts, not providers
        why = why.replace(f"provider {candidate['provider']}", candidate["host"])
    return Failed("claim_refused", f"No valid host was found{for_whom}. {why}", elsewhere=True, final=True)


def facts_of(told: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a candidate that was claimed."""
    return {"destination": told["host"], "cell": told["cell"], "claimed": claimed_by_name(told)}


def claimed_by_name(told: dict[str, Any]) -> str | None:
    """Return the claim for the server's record, by provider name; None: its flavor, on its host's own provider."""
    return to_json(by_name(told)) if "allocations" in told else None


def by_name(told: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return a candidate's claim that is more than the plain flavor, by provider name."""
    names = {told["provider"]: told["host"], **told["names"]}
    return {names[provider]: given for provider, given in told["allocations"].items() if given}


async def release_all(ctx: Context) -> dict[str, Any]:
    """Everything the server and its migrations hold."""
    consumers = [ctx.server_id or "", *ctx.facts.get("consumers", [])]
    released = await claims.release(ctx.world.db.placement, ctx.fence, consumers)
    return {"released": released.rows}


async def return_move(ctx: Context) -> dict[str, Any]:
    """The source's share is the server's again, the destination is free; never refused for capacity."""
    migration = ctx.facts.get("migration")
    if migration:
        await claims.return_move(ctx.world.db.placement, ctx.fence, migration)
    return {}


async def drop_move(ctx: Context) -> dict[str, Any]:
    """Confirmed: what the migration held on the source is free."""
    await claims.drop_move(ctx.world.db.placement, ctx.fence, ctx.facts["migration"])
    return {}
