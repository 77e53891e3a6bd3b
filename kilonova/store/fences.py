"""Writes from another database's journal: they carry (server, turn, ordinal), and older ones change nothing (law 1).

A fence is removed a day after its server's mapping (store/purge.py). So a server without a fence is new here, or it was
deleted and a conductor wakes up very late. The write's own transaction distinguishes them by the age of the conductor's
facts: a mapping that existed a few hours ago, by the databases' clocks, cannot have been purged. An older one is read
again in control, then the write is retried. That costs a write no round trip. Control itself has the mappings: there
the fence's own statement reads them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Float, Integer, Text, and_, bindparam, exists, or_, select
from sqlalchemy.dialects.postgresql import insert as insert_or_change  # both engines understand its text

from kilonova.domain.errors import Superseded
from kilonova.schema.tables.control import server_mappings
from kilonova.schema.tables.journal import fences
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Tx

# So long a mapping that was seen is believed to be there. It stays for a day after the server's last operation ended,
# and the fences for another day: the rest of the two is tolerance for two databases' clocks (law 16).
MAPPED_SECONDS = 6 * 3600.0
_SERVER: Any = bindparam("server_id", type_=Text)
_TURN: Any = bindparam("turn", type_=BigInteger)
_ORDINAL: Any = bindparam("ordinal", type_=Integer)


def _pass_if(server_is_mapped: ColumnElement[bool]) -> Sql:
    """Return one statement, since a create passes several fences: it locks the row, compares and moves it on, or
    changes nothing. A fence is created only for a server that is mapped."""
    return Sql(
        insert_or_change(fences)
        .from_select(
            ["server_id", "turn", "ordinal"],
            select(_SERVER, _TURN, _ORDINAL).where(
                or_(server_is_mapped, exists().where(fences.c.server_id == _SERVER))
            ),
        )
        .on_conflict_do_update(
            index_elements=["server_id"],
            set_={"turn": _TURN, "ordinal": _ORDINAL},
            where=or_(fences.c.turn < _TURN, and_(fences.c.turn == _TURN, fences.c.ordinal <= _ORDINAL)),
        )
    )


_PASS = _pass_if(database_time() - bindparam("mapped_at", type_=Float(53)) <= MAPPED_SECONDS)
_PASS_IN_CONTROL = _pass_if(exists().where(server_mappings.c.server_id == _SERVER))


class MappingTooOld(Exception):
    """Nothing was written: check again whether the server is mapped."""


async def pass_fence(tx: Tx, server: str, turn: int, ordinal: int, mapped_at: float) -> None:
    """Pass the fence in a cell; passing it again with the same numbers is allowed. The server had a mapping at
    `mapped_at`.

    Raise `Superseded` if a newer write came before, `MappingTooOld` if its fence may have been purged.
    """
    if not await tx.run(_PASS, server_id=server, turn=turn, ordinal=ordinal, mapped_at=mapped_at):
        await _refuse(tx, server, turn, ordinal)
        raise MappingTooOld


async def pass_fence_in_control(tx: Tx, server: str, turn: int, ordinal: int) -> None:
    """Pass the fence in control. Raise `Superseded` if a newer write came before, or if the server has no mapping."""
    if not await tx.run(_PASS_IN_CONTROL, server_id=server, turn=turn, ordinal=ordinal):
        await _refuse(tx, server, turn, ordinal)
        raise no_mapping(server)


async def _refuse(tx: Tx, server: str, turn: int, ordinal: int) -> None:
    """Raise `Superseded` if there is a fence, which is then a newer one."""
    row = await rows.fetch(tx, fences, server_id=server)
    if row is not None:
        raise Superseded(f"server {server}: write ({turn}, {ordinal}) is older than {(row['turn'], row['ordinal'])}")


def no_mapping(server: str) -> Superseded:
    return Superseded(f"server {server}: it has no mapping, it was deleted and purged; nothing is changed")
