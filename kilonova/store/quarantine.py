"""Copies of guests that the records do not explain.

They are left exactly as they are until an operator decides about them. A row whose action has ended stays as the
record of that decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from kilonova.domain.guest import CopyReport
from kilonova.schema.tables.cell import quarantine
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_OPEN = Sql(
    select(quarantine)
    .where(quarantine.c.host == bindparam("host"), quarantine.c.ended_at.is_(None))
    .order_by(quarantine.c.server_id, quarantine.c.copy)
)
_ALL = Sql(select(quarantine).order_by(quarantine.c.host, quarantine.c.server_id, quarantine.c.copy))
AS_REPORTED = ("power", "whole", "turn")
AFRESH = ("reason", "found_at", "action", "action_by", "action_at", "ended_at", *AS_REPORTED)


async def open_quarantine(tx: Tx, host: str) -> Sequence[Row]:
    """Return one host's quarantine records that no operator has ended."""
    return await tx.all(_OPEN, host=host)


async def all_quarantine(tx: Tx) -> Sequence[Row]:
    """Return the quarantine records of every host of the cell, ended ones too."""
    return await tx.all(_ALL)


async def note_quarantine(
    tx: Tx, host: str, unknown: Sequence[tuple[CopyReport, str]], now: float
) -> list[tuple[CopyReport, str]]:
    """Record the copies that a registering host reported and the records do not explain, with the reason; return the
    new ones.

    A copy that the host no longer has, or that the records explain now, leaves the quarantine.
    """
    known = {(row["server_id"], row["copy"]): row for row in await open_quarantine(tx, host)}
    reported = {(report.server, report.copy) for report, _ in unknown}
    for (server, copy), row in known.items():
        if (server, copy) not in reported and row["action"] != "remove":
            await rows.remove(tx, quarantine, host=host, server_id=server, copy=copy)
    for report, reason in unknown:
        await _put(tx, host, report, reason, now, is_known=(report.server, report.copy) in known)
    return [(report, reason) for report, reason in unknown if (report.server, report.copy) not in known]


async def add_to_quarantine(tx: Tx, host: str, report: CopyReport, reason: str, now: float) -> None:
    """Add one more copy, without a report of its host."""
    await _put(tx, host, report, reason, now, is_known=False)


async def _put(tx: Tx, host: str, report: CopyReport, reason: str, now: float, *, is_known: bool) -> None:
    await rows.put_or_change(
        tx,
        quarantine,
        AS_REPORTED if is_known else AFRESH,
        host=host,
        server_id=report.server,
        copy=report.copy,
        reason=reason,
        found_at=now,
        power=report.power,
        whole=int(report.whole),
        turn=report.turn,
        action=None,
        action_by=None,
        action_at=None,
        ended_at=None,
    )


async def end_quarantine(tx: Tx, host: str, server: str, copy: int, action: str, now: float) -> None:
    """End the quarantine of a copy after the operator's action; without an action nothing changes."""
    await rows.change(tx, quarantine, {"ended_at": now}, host=host, server_id=server, copy=copy, action=action)
