"""Permission to run: one field of the server row, moved in one place, with the proof that it may (law 3)."""

from __future__ import annotations

from kilonova.domain.errors import Failed
from kilonova.domain.host import HostState
from kilonova.domain.params import Params
from kilonova.domain.server import to_json
from kilonova.engine.context import AnyContext, Context
from kilonova.operations.facts import MoveFacts, ResizeFacts
from kilonova.store.hosts import judge_host, raise_epoch
from kilonova.world import Tx


def give_runner(ctx: AnyContext, host: str, copy: int, proof: str) -> None:
    """Give permission to run. It is committed before the step that powers the guest on is handed out."""
    ctx.set_server(runner_host=host, runner_copy=copy, runner_proof=to_json({"why": proof, "by": ctx.operation_id}))


def no_runner(ctx: AnyContext, proof: str) -> None:
    ctx.set_server(runner_host=None, runner_copy=None, runner_proof=to_json({"why": proof, "by": ctx.operation_id}))


async def require_away(ctx: AnyContext, host: str) -> None:
    """Fail if a host that was dead when the operation was accepted answers again: its guest may run, and nothing has
    stopped it.

    A host that is declared down may answer: it gets the new permission when it registers again.
    """

    async def body(tx: Tx) -> HostState | None:
        return await judge_host(tx, host, ctx.settings.default.service_down_time)

    state = await ctx.journal.read(body)
    if state is not None and state.is_up:
        raise Failed("source_back", f"host {host}: it answers again; the server stays there", final=True)

    async def change(tx: Tx, now: float) -> None:
        await raise_epoch(tx, host)

    ctx.in_transaction(change)


async def give_to_destination(ctx: Context[MoveFacts, Params]) -> None:
    """Give the destination permission to run: the step before reported the source's copy stopped."""
    facts = ctx.facts
    give_runner(ctx, facts.destination, facts.copy, f"{facts.source} reported its copy stopped")
    ctx.set_server(host=facts.destination, copy=facts.copy, claimed=facts.claimed)
    ctx.set_migration(facts.migration, status="post-migrating")


async def give_resized_to_destination(ctx: Context[ResizeFacts, Params]) -> None:
    """Set the new flavor together with the host: both decide what the server owns."""
    ctx.set_server(flavor=ctx.facts.new_flavor)
    await give_to_destination(ctx)


async def give_resized_to_source(ctx: Context[ResizeFacts, Params]) -> None:
    """Set the old flavor together with the host."""
    ctx.set_server(flavor=ctx.facts.old_flavor)
    await give_to_source(ctx)


async def give_to_source(ctx: Context[MoveFacts, Params]) -> None:
    """Give the source permission to run (undo, revert): the step before reported the destination's copy stopped, or its
    host is declared down."""
    facts = ctx.facts
    give_runner(ctx, facts.source, facts.source_copy, "the destination's copy is stopped or declared down")
    ctx.set_server(host=facts.source, copy=facts.source_copy, claimed=facts.source_claimed)
