"""The findings that abandoned steps left, with the operator who settled them (law 17)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.engine.core import has_servers
from kilonova.engine.course import Go
from kilonova.engine.journal import Op
from kilonova.schema.tables.journal import findings, interventions, steps
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.world import Store, Tx

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Intervention:
    """An operator's decision about an operation."""

    verb: str  # resume | abandon
    cause: Cause
    reason: str = ""


@dataclass(frozen=True)
class NewFinding:
    """The id of the new finding, and what placement held: JSON of domain/owned.py Share."""

    id: str
    holds: str


async def put_intervention(tx: Tx, op: Op, intervention: Intervention, now: float) -> None:
    earlier = await rows.fetch_all(tx, interventions, operation_id=op.id, ordinal=op.ordinal)
    if any((row["verb"], row["request_id"]) == (intervention.verb, intervention.cause.request_id) for row in earlier):
        return  # our own COMMIT was unknown (law 12)
    await rows.put(
        tx,
        interventions,
        operation_id=op.id,
        ordinal=op.ordinal,
        number=len(earlier) + 1,
        verb=intervention.verb,
        user_id=intervention.cause.user_id,
        request_id=intervention.cause.request_id,
        reason=intervention.reason,
        created_at=now,
    )


async def put_finding(
    tx: Tx, op: Op, kind: str, go: Go, intervention: Intervention, left: NewFinding, now: float
) -> None:
    tried = await rows.fetch(tx, steps, operation_id=op.id, ordinal=op.ordinal - 1)
    await rows.put(
        tx,
        findings,
        id=left.id,
        operation_id=op.id,
        ordinal=op.ordinal,
        kind=kind,
        server_id=op.server_id,
        step=go.step,
        way=go.way,
        host=go.target.host,
        copy=go.target.copy,
        holds=left.holds,
        error=None if tried is None else tried["error"],
        user_id=intervention.cause.user_id,
        reason=intervention.reason,
        created_at=now,
        open=1,
        settled_by=None,
        settled_reason=None,
        settled_at=None,
    )


async def settle(store: Store, finding_id: str, cause: Cause, reason: str, now: float) -> None:
    """Settle a finding: its remains have no owner now, the next audit frees them, and the host checks its guests."""

    async def body(tx: Tx) -> None:
        row = await rows.fetch(tx, findings, lock=True, id=finding_id)
        if row is None:
            raise Refused("not_found", f"finding {finding_id}: not found")
        if not row["open"]:
            raise Refused("settled", f"finding {finding_id}: already settled by {row['settled_by']}")
        settled = {"open": 0, "settled_by": cause.user_id, "settled_reason": reason, "settled_at": now}
        await rows.change(tx, findings, settled, id=finding_id)
        if row["host"] and has_servers(store):
            await raise_epoch(tx, row["host"])

    await store.write(body)
    logger.warning("finding settled: finding=%s user=%s reason=%s", finding_id, cause.user_id, reason)
