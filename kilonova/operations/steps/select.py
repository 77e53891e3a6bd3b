"""Choose a destination: the plan of an operation, with its verdicts stored in the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.errors import NotKnown, NotYet, NoValidHost, Unreachable
from kilonova.domain.json import JsonObject, as_list
from kilonova.domain.params import MoveParams, Params, ServerSpec
from kilonova.domain.server import Flavor
from kilonova.engine.context import AnyContext, Context
from kilonova.engine.facts import OperationFacts
from kilonova.operations.facts import HostChoice, PlacedFacts
from kilonova.operations.steps.group import group_of, requested_details
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.request import ImageFacts, ResourceRequest
from kilonova.scheduler.service import Placing
from kilonova.scheduler.verdict import Choice, Decision
from kilonova.world import Tx

T = TypeVar("T")
LOOKED_AT_AGAIN = 5.0  # seconds, unless an answer arrives before
TRIED = "it was tried before in this operation"


async def choose(
    ctx: Context[PlacedFacts, MoveParams | ServerSpec],
    flavor: Flavor,
    cells: Sequence[str],
    excluded: dict[str, str],
    wanted: str | None = None,
    *,
    dead_host: str = "",
    preferred: str = "",
) -> None:
    """Note the candidates, best first, and the decision with host x filter x number. `preferred`: the host that an
    earlier plan chose."""
    assert ctx.scheduler is not None
    excluded = {**excluded, **dict.fromkeys(ctx.facts.tried, TRIED)}
    request = request_for(ctx, flavor, excluded, wanted, await group_of(ctx, dead_host))
    request = msgspec.structs.replace(request, rescue=bool(dead_host), preferred_host=preferred)
    if ctx.server is not None:
        request = msgspec.structs.replace(request, home=ctx.journal.name)
    attempts = ctx.settings.scheduler.max_attempts
    asking = ctx.scheduler.place(request, cells, alternates=attempts - 1, rehearsing=ctx.rehearsing)
    placing = await unless_away(ctx, asking)
    decision = msgspec.to_builtins(placing.decision)
    if placing.decision.chosen is None:
        await wait_for_answers(ctx, placing.decision)
        raise NoValidHost(f"No valid host was found. {placing.decision.sentence()}", details={"decision": decision})
    ctx.documents["decision"] = decision
    ctx.facts.candidates = candidates(placing, flavor)


async def wait_for_answers(ctx: AnyContext, decision: Decision) -> None:
    """Return if it is certain that nothing fits now; else raise `NotYet` or, after `unknown_wait`, `NotKnown`."""
    if not decision.unknown:
        return
    await _wait(ctx, f"{decision.awaited()}: no other host fits", msgspec.to_builtins(decision))


async def unless_away(ctx: AnyContext, asking: Awaitable[T]) -> T:
    """Await a result; wait if a database is unreachable: without placement and control it is unknown what fits."""
    try:
        return await asking
    except Unreachable as why:
        await _wait(ctx, f"a database to answer: {why}")


async def _wait(ctx: AnyContext, text: str, decision: JsonObject | None = None) -> NoReturn:
    limit = ctx.settings.scheduler.unknown_wait
    if ctx.rehearsing or await age_of(ctx) < limit:
        ctx.facts.decision = decision or ctx.facts.decision
        raise NotYet(text, LOOKED_AT_AGAIN, for_answer=True, keeps_facts=True)
    facts = {} if decision is None else {"decision": decision}
    raise NotKnown(f"For {limit:.0f} s it was not known whether a host fits. It waited for {text}", details=facts)


async def age_of(ctx: AnyContext) -> float:
    """Seconds since the operation was accepted, by the clock of its journal."""

    async def now(tx: Tx) -> float:
        return await tx.now()

    return await ctx.journal.read(now, few=True) - ctx.accepted_at


def request_for(
    ctx: Context[OperationFacts, MoveParams | ServerSpec],
    flavor: Flavor,
    excluded: dict[str, str],
    wanted: str | None,
    group: GroupRule | None = None,
) -> ResourceRequest:
    """Return the resource request. The create request counts for every later move, except its forced host."""
    image, project = _image_and_project(ctx)
    forced = wanted if ctx.params.forced else None
    return request_of(
        requested_details(ctx),
        flavor=flavor,
        image=image,
        server=ctx.server_id or "",
        project=project,
        excluded=excluded,
        wanted_host=None if forced else wanted,
        forced_host=forced,
        group=group,
    )


def request_of(details: Details, *, image: str, **more: Any) -> ResourceRequest:
    hints = {name: as_list(values) for name, values in details.scheduler_hints.items()}
    return ResourceRequest(
        image=ImageFacts(image, details.image_format, details.image_properties),
        volume_backed=details.volume_backed,
        hints={name: [str(value) for value in values] for name, values in hints.items()},
        zone=details.pinned_zone or "",
        **more,
    )


def _image_and_project(ctx: Context[OperationFacts, MoveParams | ServerSpec]) -> tuple[str, str]:
    """Image and project: of the request while the server is in no cell yet, else of its record."""
    if ctx.server is None and isinstance(ctx.params, ServerSpec):
        return ctx.params.image, ctx.params.project_id
    return ctx.row.image_ref, ctx.row.project_id


def candidates(placing: Placing, flavor: Flavor) -> list[HostChoice]:
    """Best first: provider, host and cell of each, and what would be claimed unless it is the flavor, there."""
    return [_candidate(choice, flavor) for choice in placing.decision.taken]


def _candidate(choice: Choice, flavor: Flavor) -> HostChoice:
    if choice.allocations == {choice.provider: flavor.resources()}:
        return HostChoice(provider=choice.provider, host=choice.host, cell=choice.cell)
    return HostChoice(
        provider=choice.provider,
        host=choice.host,
        cell=choice.cell,
        allocations=choice.allocations,
        names=choice.names,
    )


def remember_tried(ctx: Context[PlacedFacts, Params]) -> None:
    """Note the failed destination: the next attempt excludes it."""
    facts = ctx.facts
    if facts.destination:
        facts.tried, facts.destination = [*facts.tried, facts.destination], ""
