"""A parent looks at its children now and then; the last one that ends makes it look at once."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from kilonova.engine.core import Engine
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.journal import operations, steps
from kilonova.world import Store, Tx

_LIVE_CHILD = Sql(
    select(operations.c.id).where(operations.c.parent_id == bindparam("parent"), operations.c.live == 1).limit(1)
)


async def tell_parent(engine: Engine, journal: Store, parent: str) -> None:
    """A crash before this costs only the time until the parent's next look."""

    async def body(tx: Tx) -> bool:
        if await tx.one(_LIVE_CHILD, parent=parent) is not None:
            return False
        return bool(await rows.change(tx, steps, {"not_before": 0.0}, operation_id=parent, state="ready", open=1))

    if await engine.write(journal, body):
        await engine.wake(journal.name, parent)
