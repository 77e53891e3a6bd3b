"""The record of a move: what os-migrations shows, and what holds the source's share of the books while it is open."""

from __future__ import annotations

from typing import Any

from kilonova.domain.cause import Cause
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.domain.server import Server
from kilonova.engine.context import Context
from kilonova.engine.model import Record
from kilonova.operations.facts import MoveFacts, ResizeFacts
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx


async def put_migration(
    tx: Tx, kind: str, server: Server, operation_id: str, facts: MoveFacts, cause: Cause, now: float, **columns: Any
) -> None:
    """Insert a migration record from `facts.source` on; `columns` are its state."""
    await rows.put(
        tx,
        cell.migrations,
        **columns,
        id=facts.migration,
        server_id=server.id,
        operation_id=operation_id,
        kind=kind,
        source_host=facts.source,
        source_copy=facts.source_copy,
        old_flavor=server.flavor_document,
        new_flavor=facts.new_flavor if isinstance(facts, ResizeFacts) else server.flavor_document,
        old_claimed=server.claimed,
        old_vm_state=facts.was,
        user_id=cause.user_id,
        project_id=server.project_id,
        created_at=now,
        updated_at=now,
    )


def open_migration(kind: str, status: str) -> Record[MoveFacts, Params]:
    """Record the migration and the copy that is going to be made, with its claim."""

    def record(ctx: Context[MoveFacts, Params], result: StepResult) -> None:
        server, facts = ctx.row, ctx.facts
        facts.copy, facts.source_claimed = ctx.turn, server.claimed
        ctx.set_copy(ctx.turn, facts.destination, "making")

        async def change(tx: Tx, now: float) -> None:
            columns = {"status": status, "dest_host": facts.destination, "dest_copy": ctx.turn, "open": 1}
            columns["source_copy"] = facts.source_copy
            if not await rows.change(tx, cell.migrations, {**columns, "updated_at": now}, id=facts.migration):
                del columns["source_copy"]
                await put_migration(tx, kind, server, ctx.operation_id, facts, ctx.cause, now, **columns)

        ctx.in_transaction(change)

    return record


async def mark_migration(tx: Tx, migration: str, status: str, now: float) -> None:
    """Record how far the operation's migration is, in the transaction that accepts the operation."""
    await rows.change(tx, cell.migrations, {"status": status, "updated_at": now}, id=migration)


def close_migration(ctx: Context[MoveFacts, Params], status: str) -> None:
    if ctx.facts.migration:
        ctx.set_migration(ctx.facts.migration, status=status, open=0)
