"""Servers whose records were made again after their cell was lost: the host with their claim says what they are.

Its only whole copy that runs is the server. If none runs, its only whole copy is, and the server is stopped, unless a
move was open: the copy may be the older one then. Every other copy goes to quarantine, as unknown copies do.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, or_, select

from kilonova.domain.guest import CopyReport
from kilonova.domain.server import (
    ACTIVE,
    LOST,
    LOST_IN_MOVE,
    POWER_RUNNING,
    POWER_SHUTDOWN,
    RESTORED,
    SETTLED,
    STOPPED,
    to_json,
)
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_LOST = Sql(
    select(*cell.servers.c["id", "unsettled"])
    .where(
        cell.servers.c.host == bindparam("host"),
        or_(cell.servers.c.unsettled == LOST, cell.servers.c.unsettled == LOST_IN_MOVE),
        cell.servers.c.runner_host.is_(None),
        cell.servers.c.operation_id.is_(None),
        cell.servers.c.deleted == 0,
    )
    .order_by(cell.servers.c.id)
)


async def adopt_lost(tx: Tx, host: str, reports: Sequence[CopyReport], now: float) -> list[tuple[str, int]]:
    """Adopt them before the host's copies are judged; return the servers and copies that were adopted."""
    adopted = []
    for row in await tx.all(_LOST, host=host):
        report = _counting(row, [one for one in reports if one.server == row["id"] and one.whole])
        if report is None:
            await rows.change(tx, cell.servers, {"unsettled": SETTLED, "updated_at": now}, id=row["id"])
            continue
        await rows.change(tx, cell.servers, _adopted(host, report, now), id=row["id"])
        copy = {"server_id": row["id"], "copy": report.copy, "host": host, "state": "whole", "claim": None}
        await rows.put(tx, cell.copies, unless_there=True, **copy, operation_id="", created_at=now)
        adopted.append((row["id"], report.copy))
    return adopted


def _counting(row: Row, whole: list[CopyReport]) -> CopyReport | None:
    running = [one for one in whole if one.power == "on"]
    candidates = running or (whole if row["unsettled"] == LOST else [])
    return candidates[0] if len(candidates) == 1 else None


def _adopted(host: str, report: CopyReport, now: float) -> dict[str, object]:
    """Return the columns of an adopted server. `returned` records later whether it still runs, as after a restore."""
    proof = {"why": f"the cell's database was lost; {host} holds the claim and reported the copy", "by": ""}
    is_on = report.power == "on"
    return {
        "copy": report.copy,
        "runner_host": host,
        "runner_copy": report.copy,
        "runner_proof": to_json(proof),
        "vm_state": ACTIVE if is_on else STOPPED,
        "power_state": POWER_RUNNING if is_on else POWER_SHUTDOWN,
        "unsettled": RESTORED,
        "launched_at": now,
        "updated_at": now,
    }
