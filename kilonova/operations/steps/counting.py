"""Counting of a server, with its flavor, against its owner's quota. Control keeps the count, so every write is
fenced (law 1)."""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.server import Flavor, flavor_from, from_json, to_json
from kilonova.engine.context import Context
from kilonova.engine.model import Facts, StepTargets, Target
from kilonova.operations.checks.held import held_in_placement
from kilonova.quota import usage
from kilonova.quota.check import exceeded, exceeded_by
from kilonova.schema.tables import control
from kilonova.store import rows
from kilonova.store.fences import pass_fence_in_control
from kilonova.store.quota_locks import lock_project_quota
from kilonova.world import Tx

OLD, NEW = "old_flavor", "new_flavor"  # facts of a resize: documents


async def uncount(ctx: Context) -> Facts:
    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.uncount_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)
    return {}


async def count_back(ctx: Context) -> Facts:
    """An undo is never refused: it was the owner's a moment ago."""

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)
    return {}


async def count_again(ctx: Context) -> Facts:
    """Count the server again; fail if that exceeds the quota."""
    owner = ctx.row.project_id, ctx.row.user_id

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")
        over = await exceeded(tx, owner[0], {}, user=owner[1], defaults=ctx.limits.quota)
        if over:
            raise Failed("quota_exceeded", f"Quota exceeded: {'; '.join(over)}", final=True)

    await ctx.world.db.control.write(body)
    return {}


def size_of(flavor: Flavor) -> dict[str, int]:
    """Return the usage of the quotas that depend on the flavor."""
    return {"cores": flavor.vcpus, "ram": flavor.memory_mb}


def growth(before: usage.Amounts, after: usage.Amounts) -> dict[str, int]:
    """Return the amounts that grow."""
    return {name: amount - before[name] for name, amount in after.items() if amount > before.get(name, amount)}


def _grows(before: str, after: str) -> StepTargets:
    def targets(facts: Facts) -> list[Target]:
        sizes = [size_of(flavor_from(facts[name])) for name in (before, after)]
        return [Target("")] if growth(*sizes) else []

    return StepTargets("control", targets)


GROWS, GROWS_BACK = _grows(OLD, NEW), _grows(NEW, OLD)


async def raise_to_new(ctx: Context) -> Facts:
    return await _raise_to(ctx, NEW)


async def raise_to_old(ctx: Context) -> Facts:
    """A server whose new host is dead has no other way: confirm and evacuate are refused, so the quota is not asked."""
    return await _raise_to(ctx, OLD, is_refused=not ctx.facts.get("destination_down"))


async def _raise_to(ctx: Context, name: str, *, is_refused: bool = True) -> Facts:
    """Count what is more with this flavor, where the quota has room for it; what becomes less is counted until the
    flavor is recorded. `is_refused`: where it has none."""
    server, owner = ctx.server_id or "", (ctx.row.project_id, ctx.row.user_id)
    wanted, defaults = size_of(flavor_from(ctx.facts[name])), ctx.limits.quota
    held = await held_in_placement(ctx.world.db.placement, ctx.limits, *owner)

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
    return {}


async def count_old(ctx: Context) -> Facts:
    return await _count(ctx, OLD)


async def count_new(ctx: Context) -> Facts:
    return await _count(ctx, NEW)


async def _count(ctx: Context, name: str) -> Facts:
    """An undo is never refused: the server counted with this flavor before."""

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.set_size(tx, ctx.server_id or "", size_of(flavor_from(ctx.facts[name])))

    await ctx.world.db.control.write(body)
    return {}


async def record_new(ctx: Context) -> Facts:
    return await _record(ctx, NEW)


async def record_old(ctx: Context) -> Facts:
    return await _record(ctx, OLD)


async def _record(ctx: Context, name: str) -> Facts:
    """The server counts with this flavor, and its request names it: who places it again asks for that."""
    server, flavor = ctx.server_id or "", flavor_from(ctx.facts[name])

    async def body(tx: Tx) -> None:
        await pass_fence_in_control(tx, server, ctx.turn, ctx.ordinal)
        await usage.set_size(tx, server, size_of(flavor))
        request = await rows.fetch(tx, control.request_specs, lock=True, server_id=server)
        if request is not None:
            spec = to_json({**from_json(request["spec"], {}), "flavor": msgspec.to_builtins(flavor)})
            await rows.change(tx, control.request_specs, {"spec": spec}, server_id=server)

    await ctx.world.db.control.write(body)
    return {}
