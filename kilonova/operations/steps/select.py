"""Choosing a destination: the plan of an operation, with its verdicts kept in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kilonova.domain.errors import NotYet, NoValidHost
from kilonova.domain.server import Flavor
from kilonova.engine.context import Context
from kilonova.engine.model import Place, Target
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.service import Placing

# From the second attempt on: the first destination was chosen by whoever handed the operation over.
ELSEWHERE = Place("control", lambda facts: [Target("")] if facts.get("tried") else [])


async def choose(
    ctx: Context, flavor: Flavor, cells: Sequence[str], excluded: dict[str, str], wanted: str | None = None
) -> dict[str, Any]:
    """Facts: the candidates best first, and the decision with host x filter x number."""
    assert ctx.scheduler is not None
    tried = {host: "it was tried before in this operation" for host in ctx.facts.get("tried", ())}
    request = ResourceRequest(resources=flavor.resources(), excluded={**excluded, **tried}, wanted_host=wanted)
    placing = await ctx.scheduler.place(request, cells, alternates=ctx.limits.max_attempts - 1)
    decision = msgspec.to_builtins(placing.decision)
    if placing.decision.chosen is None:
        if placing.on_their_way and ctx.scheduler.may_wait(ctx.operation_id):
            raise NotYet(f"{', '.join(placing.on_their_way[:5])} to be heard: no other host fits", 1.0)
        raise NoValidHost(f"No valid host was found. {placing.decision.sentence()}", details={"decision": decision})
    return {"decision": decision, "candidates": candidates(placing)}


def candidates(placing: Placing) -> list[dict[str, str]]:
    """Best first: provider, host and cell of each."""
    chosen = [c for c in (placing.decision.chosen, *placing.decision.alternates) if c is not None]
    return [{"provider": c.provider, "host": c.host, "cell": placing.cells[c.provider]} for c in chosen]


def remember_tried(ctx: Context, result: dict[str, Any]) -> None:
    """This destination did not work: the next attempt looks elsewhere."""
    destination = ctx.facts.get("destination")
    if destination:
        ctx.facts["tried"] = [*ctx.facts.get("tried", []), destination]
        ctx.facts.pop("destination")
