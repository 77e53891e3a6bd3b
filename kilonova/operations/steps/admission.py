"""The limit of concurrent children of whole-host operations per destination (law 11)."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import NotYet
from kilonova.engine.context import AnyContext
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx

_RUNNING_THERE = Sql(
    select(func.count().label("n")).where(
        operations.c.live == 1,
        operations.c.destination == bindparam("host"),
        operations.c.parent_id.is_not(None),
        operations.c.id != bindparam("me"),
    )
)


def admit_child(ctx: AnyContext, destination: str) -> None:
    """Count this operation at its destination, in the transaction of the step; raise `NotYet` there while the
    destination has as many as it may take."""

    async def change(tx: Tx, now: float) -> None:
        await rows.fetch(tx, cell.hosts, lock=True, name=destination)
        row = await tx.one(_RUNNING_THERE, host=destination, me=ctx.operation_id)
        limit = ctx.settings.conductor.evacuations_per_destination
        if row is not None and row["n"] >= limit:
            raise NotYet(f"{destination} to finish one of the {limit} evacuations it may take at a time", 1.0)

    ctx.in_transaction(change)
    ctx.destination = destination
