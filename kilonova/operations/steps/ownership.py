"""Permission to run: one field of the server row, moved in one place, with the proof that it may (law 3)."""

from __future__ import annotations

from typing import Any

from kilonova.domain.server import to_json
from kilonova.engine.context import Context


def give_runner(ctx: Context, host: str, copy: int, proof: str) -> None:
    """Committed before the step that powers on is handed out."""
    ctx.set_server(runner_host=host, runner_copy=copy, runner_proof=to_json({"why": proof, "by": ctx.operation_id}))


def no_runner(ctx: Context, proof: str) -> None:
    ctx.set_server(runner_host=None, runner_copy=None, runner_proof=to_json({"why": proof, "by": ctx.operation_id}))


async def give_to_destination(ctx: Context) -> dict[str, Any]:
    """The source's copy was reported stopped by the step before."""
    facts = ctx.facts
    give_runner(ctx, facts["destination"], facts["copy"], f"{facts['source']} reported its copy stopped")
    ctx.set_server(host=facts["destination"], copy=facts["copy"], claimed=facts.get("claimed"))
    ctx.set_migration(status="post-migrating")
    return {}


async def give_to_source(ctx: Context) -> dict[str, Any]:
    """The destination's copy was reported stopped, or its host declared down, by the step before (undo, revert)."""
    facts = ctx.facts
    give_runner(ctx, facts["source"], facts["source_copy"], "the destination's copy is stopped or declared down")
    ctx.set_server(host=facts["source"], copy=facts["source_copy"], claimed=facts.get("source_claimed"))
    return {}
