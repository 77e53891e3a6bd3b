"""Writes that come from another database's journal carry (server, turn, ordinal); older ones change nothing (law 1)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, bindparam, or_
from sqlalchemy.dialects.postgresql import insert as insert_or_change  # both engines understand its text

from kilonova.domain.errors import Superseded
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.journal import fences
from kilonova.world import Tx

_TURN: Any = bindparam("turn")
_ORDINAL: Any = bindparam("ordinal")
# One statement, since a create passes four fences: it locks the row, compares and moves it on, or changes nothing.
_PASS = Sql(
    insert_or_change(fences)
    .values(server_id=bindparam("server_id"), turn=_TURN, ordinal=_ORDINAL)
    .on_conflict_do_update(
        index_elements=["server_id"],
        set_={"turn": _TURN, "ordinal": _ORDINAL},
        where=or_(fences.c.turn < _TURN, and_(fences.c.turn == _TURN, fences.c.ordinal <= _ORDINAL)),
    )
)


async def pass_fence(tx: Tx, server: str, turn: int, ordinal: int) -> None:
    """Raises `Superseded` when something newer has already written here; doing the same again passes."""
    if await tx.run(_PASS, server_id=server, turn=turn, ordinal=ordinal):
        return
    row = await rows.fetch(tx, fences, server_id=server)
    newer = (row["turn"], row["ordinal"]) if row is not None else ()
    raise Superseded(f"server {server}: write ({turn}, {ordinal}) is older than {newer}")
