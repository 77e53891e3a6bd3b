"""The server group that binds a claim."""

from __future__ import annotations

from kilonova.domain.server import from_json
from kilonova.engine.context import Context
from kilonova.placement.groups import GroupRule
from kilonova.services.compute.server_groups import group_of_server

HINT = "group"


async def group_of(ctx: Context) -> GroupRule | None:
    """As it is now: a group may have been deleted since the server joined it. Who gave no hint never joined one."""
    details = from_json(ctx.row.details, {}) if ctx.server is not None else ctx.params.get("details", {})
    if not details.get("scheduler_hints", {}).get(HINT):
        return None
    return await group_binding(ctx, ctx.server_id or "")


async def group_binding(ctx: Context, server_id: str) -> GroupRule | None:
    group = await group_of_server(ctx.world.db.control, server_id)
    return None if group is None else GroupRule(group.id, group.policy, group.max_server_per_host or 1)
