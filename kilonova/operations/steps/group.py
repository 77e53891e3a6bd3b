"""The server group that binds a claim."""

from __future__ import annotations

from kilonova.engine.context import Context
from kilonova.placement.groups import GroupRule
from kilonova.services.compute.server_groups import group_named
from kilonova.world import Store

HINT = "group"


async def group_of(ctx: Context, dead_host: str = "") -> GroupRule | None:
    """The one that the hint named, as it is now: it may have been deleted since the server joined it. A dry run asks
    for servers that have not joined and never will, so it is not looked for among the members."""
    asked = ctx.params.get("details", {}).get("scheduler_hints", {})
    named = (asked if ctx.server is None else ctx.server.details.scheduler_hints).get(HINT)
    return await rule_of(ctx.world.db.control, named[0], dead_host) if named else None


async def rule_of(control: Store, named: str, dead_host: str) -> GroupRule | None:
    group = await group_named(control, named)
    return None if group is None else GroupRule(group.id, group.policy, group.max_server_per_host or 1, dead_host)
