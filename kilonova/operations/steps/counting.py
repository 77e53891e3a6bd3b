"""The count of a server, with its flavor, against its owner's quota. It is in control, so every write is fenced (law
1)."""

from __future__ import annotations

from kilonova.domain.errors import Failed
from kilonova.domain.json import json_object
from kilonova.domain.params import Params
from kilonova.domain.server import Flavor, flavor_from, to_json
from kilonova.engine.context import AnyContext, Context
from kilonova.engine.model import StepTargets, Target
from kilonova.operations.checks.held import held_in_placement
from kilonova.operations.facts import ResizeFacts, RevertFacts
from kilonova.quota import usage
from kilonova.quota.check import exceeded, exceeded_by
from kilonova.quota.resources import default_limits
from kilonova.schema.tables import control
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.quota_locks import lock_project_quota
from kilonova.world import Tx

ResizeContext = Context[ResizeFacts, Params]
RevertContext = Context[RevertFacts, Params]


async def uncount(ctx: AnyContext) -> None:
    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.uncount_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)


async def count_back(ctx: AnyContext) -> None:
    """Count the server again. An undo is never refused: the owner had the quota a moment ago."""

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)


async def count_again(ctx: AnyContext) -> None:
    """Count the server again; fail if that exceeds the quota."""
    owner = ctx.row.project_id, ctx.row.user_id

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")
        over = await exceeded(tx, owner[0], {}, user=owner[1], defaults=default_limits(ctx.settings.quota))
        if over:
            raise Failed("quota_exceeded", f"Quota exceeded: {'; '.join(over)}", final=True)

    await ctx.world.db.control.write(body)


def size_of(flavor: Flavor) -> dict[str, int]:
    """Return the usage of the quotas that depend on the flavor."""
    return {"cores": flavor.vcpus, "ram": flavor.memory_mb}


def growth(before: usage.Amounts, after: usage.Amounts) -> dict[str, int]:
    """Return the amounts that grow."""
    return {name: amount - before[name] for name, amount in after.items() if amount > before.get(name, amount)}


def _growing(before: str, after: str) -> list[Target]:
    return [Target("")] if growth(size_of(flavor_from(before)), size_of(flavor_from(after))) else []


GROWS: StepTargets[ResizeFacts] = StepTargets("control", lambda facts: _growing(facts.old_flavor, facts.new_flavor))
GROWS_BACK: StepTargets[ResizeFacts] = StepTargets(
    "control", lambda facts: _growing(facts.new_flavor, facts.old_flavor)
)


async def raise_to_new(ctx: ResizeContext) -> None:
    await _raise_to(ctx, ctx.facts.new_flavor)


async def raise_to_old(ctx: RevertContext) -> None:
    """Count the growth to the old flavor. If the new host is dead, the quota is not checked: confirm and evacuate are
    refused, so the revert is the only way."""
    await _raise_to(ctx, ctx.facts.old_flavor, is_refused=not ctx.facts.destination_down)


async def _raise_to(ctx: ResizeContext, flavor: str, *, is_refused: bool = True) -> None:
    """Count the growth to this flavor; what shrinks stays counted until the flavor is recorded.

    `is_refused`: fail if the growth exceeds the quota.
    """
    server, owner = ctx.server_id or "", (ctx.row.project_id, ctx.row.user_id)
    wanted, defaults = size_of(flavor_from(flavor)), default_limits(ctx.settings.quota)
    held = await held_in_placement(ctx.world.db.placement, ctx.settings.quota, *owner)

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, server, ctx.turn, ctx.ordinal)
        await lock_project_quota(tx, owner[0])
        size = await usage.size_of(tx, server)
        more = growth(size, wanted)
        if is_refused and (over := await exceeded_by(tx, owner, more, defaults=defaults, held=held)):
            raise Failed("quota_exceeded", f"Quota exceeded: {'; '.join(over)}", final=True)
        if more:
            await usage.set_size(tx, server, {kind: size[kind] + more.get(kind, 0) for kind in size})

    await ctx.world.db.control.write(body)


async def count_old(ctx: ResizeContext) -> None:
    await _count(ctx, ctx.facts.old_flavor)


async def count_new(ctx: ResizeContext) -> None:
    await _count(ctx, ctx.facts.new_flavor)


async def _count(ctx: ResizeContext, flavor: str) -> None:
    """Count the server with this flavor. An undo is never refused: it counted with it before."""

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.set_size(tx, ctx.server_id or "", size_of(flavor_from(flavor)))

    await ctx.world.db.control.write(body)


async def record_new(ctx: ResizeContext) -> None:
    await _record(ctx, ctx.facts.new_flavor)


async def record_old(ctx: ResizeContext) -> None:
    await _record(ctx, ctx.facts.old_flavor)


async def _record(ctx: ResizeContext, document: str) -> None:
    """Record the flavor in the count and in the server's request spec, which later placements use."""
    server, flavor = ctx.server_id or "", flavor_from(document)

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, server, ctx.turn, ctx.ordinal)
        await usage.set_size(tx, server, size_of(flavor))
        request = await rows.fetch(tx, control.request_specs, lock=True, server_id=server)
        if request is not None:
            spec = to_json({**json_object(request["spec"]), "flavor": flavor})
            await rows.change(tx, control.request_specs, {"spec": spec}, server_id=server)

    await ctx.world.db.control.write(body)
