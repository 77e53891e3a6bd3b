"""A dry run of evacuate_host: each server's own dry run, put together. Nothing is stored.

Each server is planned by itself, against what is free now: whether the destinations have room for all of them together
turns out when they claim it, and who comes too late then looks for another.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.rehearse import rehearse
from kilonova.operations.evacuate_host import servers_on
from kilonova.operations.hosts import find_host
from kilonova.operations.submit import require_dead
from kilonova.world import Tx


class PlannedMove(msgspec.Struct, frozen=True):
    server: str
    to: str
    decision: dict[str, Any]


class HostRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """Who would go where; who would find no place; who may not be evacuated now."""

    operation: str
    host: str
    moves: list[PlannedMove]
    misfits: dict[str, str]
    refused: dict[str, str]


async def rehearse_host(engine: Engine, host: str, cause: Cause) -> HostRehearsal:
    """Raises `Refused` exactly when the real request would be refused."""
    journal, _ = await find_host(engine, host)

    async def body(tx: Tx) -> list[str]:
        await require_dead(engine, tx, host)
        return await servers_on(tx, host)

    told = HostRehearsal(operation="evacuate_host", host=host, moves=[], misfits={}, refused={})
    for server in await journal.read(body):
        ask = Ask(kind="evacuate", server_id=server, cause=cause, params={"child": True})
        try:
            found = await rehearse(engine, journal, ask)
        except Refused as why:
            told.refused[server] = why.message
            continue
        if found.problem is not None:
            told.misfits[server] = found.problem.message
        elif found.joins is not None:
            told.refused[server] = f"it is being evacuated already: operation {found.joins}"
        else:
            told.moves.append(PlannedMove(server, found.facts["candidates"][0]["host"], found.facts["decision"]))
    return told
