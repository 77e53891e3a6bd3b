"""Handing on what a transaction has made the next step, when it was not this worker's drive that made it."""

from __future__ import annotations

from kilonova.engine import journal as log
from kilonova.engine.children import tell_parent
from kilonova.engine.conclude import Next
from kilonova.engine.core import Engine, load_server
from kilonova.world import Store, Tx


async def pass_on(engine: Engine, journal: Store, following: Next) -> None:
    """Somebody else drives the next step: hand a CONTROL step that was taken here to this worker's loop."""
    if following.go is not None and following.go.target.host:
        await engine.wake(journal.name, following.op.id, following.go.target.host)
    elif following.go is not None and engine.on_mine is not None:
        await engine.on_mine(journal, following)
    elif following.go is not None:
        await engine.wake(journal.name, following.op.id)
    elif following.ended is not None and following.op.parent_id:
        await tell_parent(engine, journal, following.op.parent_id)


async def find_begun(engine: Engine, tx: Tx, journal: Store, operation_id: str) -> Next | None:
    """Where an operation stands that this worker began in a transaction whose COMMIT was unknown (law 12); None when
    others have its step, or nobody."""
    op = await log.load(tx, operation_id)
    row = await log.fetch_step(tx, operation_id, op.ordinal) if op is not None and op.is_live else None
    if op is None or row is None or row["heir_of"] or not row["open"]:
        return None
    go = log.go_from(row)
    if not go.target.host and row["worker"] != engine.worker:
        return None
    return Next(op, engine.operation(op.kind).step(go.step), go, await load_server(tx, journal, op))
