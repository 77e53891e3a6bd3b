"""The server group that binds a claim."""

from __future__ import annotations

from kilonova.domain.details import Details
from kilonova.domain.json import as_list
from kilonova.domain.params import Params, ServerSpec
from kilonova.engine.context import Context
from kilonova.engine.facts import OperationFacts
from kilonova.placement.groups import GroupRule
from kilonova.services.compute.server_groups import group_named
from kilonova.world import Store

HINT = "group"


async def group_of(ctx: Context[OperationFacts, Params], dead_host: str = "") -> GroupRule | None:
    """Return the group of the request's hint, as it is now; None if it was deleted since the server joined it.

    A dry run asks for servers that have not joined, so they are not looked up among the members.
    """
    named = as_list(requested_details(ctx).scheduler_hints.get(HINT))
    return await rule_of(ctx.world.db.control, str(named[0]), dead_host) if named else None


def requested_details(ctx: Context[OperationFacts, Params]) -> Details:
    """Return the details of the request while the server is in no cell yet, else those of its record."""
    if ctx.server is None and isinstance(ctx.params, ServerSpec):
        return ctx.params.details
    return ctx.row.details


async def rule_of(control: Store, named: str, dead_host: str) -> GroupRule | None:
    group = await group_named(control, named)
    return None if group is None else GroupRule(group.id, group.policy, group.max_server_per_host or 1, dead_host)
