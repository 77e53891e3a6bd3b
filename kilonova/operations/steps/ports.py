"""Steps about a server's ports. They live in the control database, so every write is fenced (law 1).

These steps are skipped for a server without ports.
"""

from __future__ import annotations

from kilonova.domain.network import Vif
from kilonova.domain.params import Params, ServerSpec
from kilonova.domain.server import to_json
from kilonova.engine.context import AnyContext, Context
from kilonova.operations.facts import MoveFacts, PlacedFacts
from kilonova.operations.steps.fenced import fence_of
from kilonova.world import Network


def _network(ctx: AnyContext) -> Network:
    if ctx.world.network is None:
        raise RuntimeError("this role has no network service")
    return ctx.world.network


def _remember(ctx: AnyContext, vifs: list[Vif]) -> None:
    ctx.set_server(network_info=to_json(vifs))


async def allocate_ports(ctx: Context[PlacedFacts, ServerSpec]) -> None:
    """Create or take the ports, with their addresses, and bind them to the destination: all of them or none."""
    details = ctx.params.details
    vifs = await _network(ctx).allocate(
        fence_of(ctx),
        project_id=ctx.row.project_id,
        user_id=ctx.row.user_id,
        wanted=ctx.params.networks,
        security_groups=ctx.params.security_groups,
        host=ctx.facts.destination,
        availability_zone=details.availability_zone or "nova",
        hostname=details.hostname,
    )
    _remember(ctx, vifs)


async def release_ports(ctx: AnyContext) -> None:
    """Delete the ports made for the server and release those it was given. No ports is fine."""
    if ctx.world.network is not None:
        await ctx.world.network.release(fence_of(ctx), server_id=ctx.server_id or "")
    if ctx.server is not None:
        ctx.set_server(network_info=None)


async def bind_to_destination(ctx: Context[MoveFacts, Params]) -> None:
    await _bind(ctx, ctx.facts.destination)


async def bind_to_source(ctx: Context[MoveFacts, Params]) -> None:
    await _bind(ctx, ctx.facts.source)


async def _bind(ctx: AnyContext, host: str) -> None:
    _remember(ctx, await _network(ctx).bind(fence_of(ctx), server_id=ctx.server_id or "", host=host))
