"""Confirm the moves that their owner has neither confirmed nor reverted within resize_confirm_window.

Any conductor may do it: asking twice is harmless. A refused confirm is repeated in the next round.

After a restore only the owner may confirm an earlier move: it may have been reverted since the backup, and the copy
that a confirm removes may be the newest (law 15).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import or_, select, update

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.server import RESIZED
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.schema.tables.cell import migrations, servers
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
MOST_BETWEEN_CONFIRMS = 60.0  # seconds
SEEN = migrations.c.finished_seen_at
_FINISHED = (migrations.c.open == 1, migrations.c.status == "finished")
# One that was seen in the future, before the database's clock was set back, is seen now (law 16).
_IS_NEW = or_(SEEN.is_(None), database_time() < SEEN)
_IS_OF_NOW = or_(servers.c.turn_floor.is_(None), migrations.c.dest_copy > servers.c.turn_floor)
_NEW = Sql(select(migrations.c.id).where(*_FINISHED, _IS_NEW).limit(1))
_SEE = Sql(update(migrations).where(*_FINISHED, _IS_NEW).values(finished_seen_at=database_time()))
_SEEN = Sql(
    select(migrations.c.server_id, SEEN, servers.c.project_id, servers.c.user_id)
    .join(servers, servers.c.id == migrations.c.server_id)
    .where(*_FINISHED, SEEN.is_not(None), servers.c.vm_state == RESIZED, servers.c.operation_id.is_(None), _IS_OF_NOW)
    .order_by(SEEN)
)


async def confirm_forgotten(engine: Engine, journal: Store) -> None:
    await _see(engine, journal)

    async def body(tx: Tx) -> Sequence[Row]:
        over = await tx.now() - engine.settings.default.resize_confirm_window
        return [row for row in await tx.all(_SEEN) if row["finished_seen_at"] <= over]

    for row in await journal.read(body):
        try:
            await submit(engine, Ask(kind="confirm_resize", server_id=row["server_id"], cause=_cause(engine, row)))
        except Refused as why:
            logger.warning("server %s: not confirmed after resize_confirm_window: %s", row["server_id"], why.message)


async def _see(engine: Engine, journal: Store) -> None:
    """Note when this conductor saw the move finished. Its window begins then, so it is never shorter than
    configured."""

    async def look(tx: Tx) -> Row | None:
        return await tx.one(_NEW)

    async def see(tx: Tx) -> None:
        await tx.run(_SEE)

    if await journal.read(look) is not None:
        await engine.write(journal, see)


def _cause(engine: Engine, row: Row) -> Cause:
    request = f"req-{engine.world.ids.uuid()}"
    owner = {"user_id": row["user_id"], "project_id": row["project_id"]}
    return Cause(**owner, through="periodic", request_id=request, reason="resize_confirm_window is over")
