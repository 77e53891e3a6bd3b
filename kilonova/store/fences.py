"""Writes that come from another database's journal carry (server, turn, ordinal); older ones change nothing (law 1)."""

from __future__ import annotations

from kilonova.domain.errors import Superseded
from kilonova.store import rows
from kilonova.store.tables.journal import fences
from kilonova.world import Tx


async def pass_fence(tx: Tx, server: str, turn: int, ordinal: int) -> None:
    """Raises `Superseded` when something newer has already written here; doing the same again passes."""
    await rows.put(tx, fences, unless_there=True, server_id=server, turn=0, ordinal=0)
    row = await rows.fetch(tx, fences, lock=True, server_id=server)
    if row is None:
        raise RuntimeError("the fence row was just inserted")
    if (row["turn"], row["ordinal"]) > (turn, ordinal):
        raise Superseded(f"server {server}: write ({turn}, {ordinal}) is older than ({row['turn']}, {row['ordinal']})")
    await rows.change(tx, fences, {"turn": turn, "ordinal": ordinal}, server_id=server)
