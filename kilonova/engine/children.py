"""A parent looks at its children now and then; each one that ends makes it look soon."""

from __future__ import annotations

from sqlalchemy import bindparam, or_, update

from kilonova.domain.errors import Superseded
from kilonova.domain.operation import FORWARD
from kilonova.engine import journal as log
from kilonova.engine.core import Engine
from kilonova.schema.tables.journal import steps
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Store, Tx

SOON = 0.05  # seconds: children that end in that time cost their parent one look, not one each
MOMENT = 0.001  # the wake-up comes after the time in the record
_LOOK_SOON = Sql(
    update(steps)
    .where(
        steps.c.operation_id == bindparam("parent"),
        steps.c.open == 1,
        or_(steps.c.state == "taken", steps.c.not_before > database_time() + SOON),
    )
    .values(not_before=database_time() + SOON)
)


async def notify_parent(engine: Engine, journal: Store, parent: str) -> None:
    """Let the parent look soon, unless it does already. A crash before this costs the time until its next look."""

    async def body(tx: Tx) -> bool:
        return bool(await tx.run(_LOOK_SOON, parent=parent))

    if await engine.write(journal, body):
        engine.wake_in(SOON + MOMENT, journal.name, parent)


def was_called(step: Row) -> bool:
    """Return whether a child has ended since the parent's step was taken: the parent may have looked before that."""
    return bool(step["state"] == "taken" and step["taken_at"] is not None and step["not_before"] > step["taken_at"])


async def require_forward(tx: Tx, parent: str) -> None:
    """Raise unless the parent of a new child goes forward; lock it against a cancel until this transaction ends."""
    op = await log.load(tx, parent, lock=True)
    if op is None or not op.is_live or op.course.mode != FORWARD:
        raise Superseded(f"operation {parent} begins no more children")
