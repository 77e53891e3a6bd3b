"""Whether a server counts against its owner's quota. That is kept in control, so every write is fenced (law 1)."""

from __future__ import annotations

from kilonova.domain.errors import Failed
from kilonova.engine.context import Context
from kilonova.engine.model import Facts
from kilonova.quota import usage
from kilonova.quota.check import exceeded
from kilonova.store.fences import pass_fence
from kilonova.world import Tx


async def uncount(ctx: Context) -> Facts:
    async def body(tx: Tx) -> None:
        await pass_fence(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.uncount_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)
    return {}


async def count_back(ctx: Context) -> Facts:
    """An undo is never refused: it was the owner's a moment ago."""

    async def body(tx: Tx) -> None:
        await pass_fence(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")

    await ctx.world.db.control.write(body)
    return {}


async def count_again(ctx: Context) -> Facts:
    """Where the quota has room for it."""
    owner = ctx.row.project_id, ctx.row.user_id

    async def body(tx: Tx) -> None:
        await pass_fence(tx, ctx.server_id or "", ctx.turn, ctx.ordinal)
        await usage.count_server(tx, ctx.server_id or "")
        over = await exceeded(tx, owner[0], {}, user=owner[1], defaults=ctx.limits.quota)
        if over:
            raise Failed("quota_exceeded", f"Quota exceeded: {'; '.join(over)}", final=True)

    await ctx.world.db.control.write(body)
    return {}
