"""The servers in cell0: each with the reason, who can retry it, and its host now, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.cause import Cause
from kilonova.domain.json import as_list, as_text
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import ERROR, Server
from kilonova.engine.core import Engine
from kilonova.operations.create.plan import decision_in
from kilonova.operations.in_cell0.rehearse import plan_place
from kilonova.operations.rebuild_in_cell0 import PASSING, request_of
from kilonova.schema.tables import cell, control
from kilonova.store.open_stores import CELL0
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

_PAGE = Sql(
    select(cell.servers)
    .where(cell.servers.c.deleted == 0, cell.servers.c.id > bindparam("marker"))
    .order_by(cell.servers.c.id)
    .limit(bindparam("limit"))
)
_FAULTS = Sql(
    select(cell.faults.c.server_id, cell.faults.c.message, cell.faults.c.created_at)
    .where(in_list(cell.faults.c.server_id, "servers"))
    .order_by(cell.faults.c.created_at)
)
_SPECS = Sql(select(control.request_specs).where(in_list(control.request_specs.c.server_id, "servers")))


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    name: str
    project_id: str
    failure: str  # its class, recorded when the server was buried
    reason: str  # as its owner reads it
    failed_at: float | None
    retryable: bool  # by our own REST
    rebuildable: bool  # by its owner, through the Compute API
    host: str | None = None  # where it would go now
    why_not: str | None = None  # the reason if it would not
    changes: list[str] = []  # the smallest changes that would let it fit; each alone is enough


async def list_unplaced(engine: Engine, cause: Cause, *, limit: int, marker: str = "") -> list[Unplaced]:
    """Return a page by id. Each server is planned alone: whether there is room for all of them is not checked."""
    db = engine.world.db

    async def buried(tx: Tx) -> tuple[Sequence[Row], dict[str, Row]]:
        records = await tx.all(_PAGE, marker=marker, limit=limit)
        faults = await tx.all(_FAULTS, servers=[row["id"] for row in records]) if records else []
        return records, {row["server_id"]: row for row in faults}

    servers, faults = await db.cell(CELL0).read(buried)

    async def fetch_specs(tx: Tx) -> dict[str, Row]:
        records = await tx.all(_SPECS, servers=[row["id"] for row in servers]) if servers else []
        return {row["server_id"]: row for row in records}

    specs = await db.control.read(fetch_specs)
    return [await _look_at(engine, cause, row, faults.get(row["id"]), specs.get(row["id"])) for row in servers]


async def _look_at(engine: Engine, cause: Cause, server: Row, fault: Row | None, spec: Row | None) -> Unplaced:
    failure = server["cell0_failure"] or ""
    is_busy = server["task_state"] is not None or server["vm_state"] != ERROR or bool(server["hidden"])
    host: str | None = None
    why_not: str | None = None
    changes: list[str] = []
    if is_busy:
        why_not = "it is being tried"
    elif spec is None:
        why_not = "its request is not recorded"
    else:
        host, why_not, changes = await _plan(
            engine, cause, Server.from_row(server), msgspec.json.decode(spec["spec"], type=ServerSpec)
        )
    return Unplaced(
        server=server["id"],
        name=server["name"],
        project_id=server["project_id"],
        failure=failure,
        reason="" if fault is None else fault["message"],
        failed_at=None if fault is None else fault["created_at"],
        retryable=spec is not None and not is_busy,
        rebuildable=failure in PASSING and spec is not None and not is_busy,
        host=host,
        why_not=why_not,
        changes=changes,
    )


async def _plan(
    engine: Engine, cause: Cause, server: Server, spec: ServerSpec
) -> tuple[str | None, str | None, list[str]]:
    """Return the scheduler's choice as of now for the request with the owner's changes since."""
    plan = await plan_place(engine, cause, server, request_of(spec, server))
    if plan.problem is None:
        return plan.facts.candidates[0].host, None, []
    decision = decision_in(plan) or {}
    return None, plan.problem.message, [as_text(one) for one in as_list(decision.get("changes"))]
