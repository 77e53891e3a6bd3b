"""Writes that come from another database's journal carry (server, turn, ordinal); older ones change nothing (law 1).

A fence is removed a day after its server's mapping (store/purge.py). So where a server has no fence, it is new here, or
gone, and a conductor wakes up very late. The write's own transaction tells them apart by the age of what the conductor
knows: a mapping that was there hours ago, by the databases' clocks, cannot have been purged. What is older is read
again in control, then the write is tried again. It costs a write no round trip.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Float, Integer, Text, and_, bindparam, exists, or_, select
from sqlalchemy.dialects.postgresql import insert as insert_or_change  # both engines understand its text

from kilonova.domain.errors import Superseded
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
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
# So long a mapping that was seen is believed to be there. It stays for a day after the server's last operation ended,
# and the fences for another day: the rest of the two is tolerance for two databases' clocks (law 16).
MAPPED_SECONDS = 6 * 3600.0
_SERVER: Any = bindparam("server_id", type_=Text)
_NEW = {"turn": bindparam("turn", type_=BigInteger), "ordinal": bindparam("ordinal", type_=Integer)}
# The same, but a fence is made only for a server whose mapping was there lately.
_PASS_MAPPED = Sql(
    insert_or_change(fences)
    .from_select(
        ["server_id", "turn", "ordinal"],
        select(_SERVER, _NEW["turn"], _NEW["ordinal"]).where(
            or_(
                database_time() - bindparam("mapped_at", type_=Float(53)) <= MAPPED_SECONDS,
                exists().where(fences.c.server_id == _SERVER),
            )
        ),
    )
    .on_conflict_do_update(
        index_elements=["server_id"],
        set_=_NEW,
        where=or_(
            fences.c.turn < _NEW["turn"], and_(fences.c.turn == _NEW["turn"], fences.c.ordinal <= _NEW["ordinal"])
        ),
    )
)


class MappingTooOld(Exception):
    """Nothing was written: look again whether the server is mapped."""


async def pass_fence(tx: Tx, server: str, turn: int, ordinal: int, mapped_at: float | None = None) -> None:
    """Raises `Superseded` when something newer has already written here; doing the same again passes. With `mapped_at`
    the server had a mapping at that time, and `MappingTooOld` is raised if its fence may have been purged since."""
    keys = {"server_id": server, "turn": turn, "ordinal": ordinal}
    if mapped_at is None:
        passed = await tx.run(_PASS, **keys)
    else:
        passed = await tx.run(_PASS_MAPPED, **keys, mapped_at=mapped_at)
    if passed:
        return
    row = await rows.fetch(tx, fences, server_id=server)
    if row is None:
        raise MappingTooOld
    raise Superseded(f"server {server}: write ({turn}, {ordinal}) is older than {(row['turn'], row['ordinal'])}")
