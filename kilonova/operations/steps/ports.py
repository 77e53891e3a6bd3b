"""Steps about a server's ports. They live in the control database, so every write is fenced (law 2).

A server without networks has no such steps: their place finds no target.
"""

from __future__ import annotations

import msgspec

from kilonova.domain.network import Vif, WantedPort
from kilonova.domain.server import to_json
from kilonova.engine.context import Context
from kilonova.engine.model import Facts, StepTargets, Target
from kilonova.world import Network

WITH_PORTS = StepTargets("control", lambda facts: [Target("")] if facts.get("ports") else [])


def _network(ctx: Context) -> Network:
    if ctx.world.network is None:
        raise RuntimeError("this role has no network service")
    return ctx.world.network


def _fence(ctx: Context) -> tuple[str, int, int]:
    return ctx.server_id or "", ctx.turn, ctx.ordinal


def _remember(ctx: Context, vifs: list[Vif]) -> None:
    ctx.set_server(network_info=to_json(vifs))


async def allocate_ports(ctx: Context) -> Facts:
    """Ports are made or taken, with their addresses, and bound to the destination: all of them or none."""
    details = ctx.params.get("details", {})
    vifs = await _network(ctx).allocate(
        _fence(ctx),
        project_id=ctx.row.project_id,
        user_id=ctx.row.user_id,
        wanted=[msgspec.convert(port, WantedPort) for port in ctx.params.get("networks", [])],
        security_groups=ctx.params.get("security_groups", []),
        host=ctx.facts["destination"],
        availability_zone=details.get("availability_zone") or "nova",
        hostname=details.get("hostname", ""),
    )
    _remember(ctx, vifs)
    return {}


async def release_ports(ctx: Context) -> Facts:
    """Delete the ports made for the server and release those it was given. No ports is fine."""
    if ctx.world.network is not None:
        await ctx.world.network.release(_fence(ctx), server_id=ctx.server_id or "")
    if ctx.server is not None:
        ctx.set_server(network_info=None)
    return {}


async def bind_to_destination(ctx: Context) -> Facts:
    return await _bind(ctx, ctx.facts["destination"])


async def bind_to_source(ctx: Context) -> Facts:
    return await _bind(ctx, ctx.facts["source"])


async def _bind(ctx: Context, host: str) -> Facts:
    _remember(ctx, await _network(ctx).bind(_fence(ctx), server_id=ctx.server_id or "", host=host))
    return {}
