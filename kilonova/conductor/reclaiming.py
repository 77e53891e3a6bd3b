"""Delete soft-deleted servers after their retention time. Any conductor may do it: asking twice is harmless.

A server that was soft-deleted before its records were restored is never reclaimed: its owner may have restored it since
the backup (law 15). The audit names it (`not_reclaimed`) until it is restored or deleted for good.
"""

from __future__ import annotations

import logging

from sqlalchemy import select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.server import SOFT_DELETED
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.schema.tables.cell import servers
from kilonova.store.restored_at import is_soft_deleted_before, restored_at, soft_deleted_at
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
_WAITING = Sql(
    select(*servers.c["id", "details", "project_id", "user_id", "turn", "turn_floor"]).where(
        servers.c.vm_state == SOFT_DELETED, servers.c.deleted == 0
    )
)


async def reclaim(engine: Engine, journal: Store) -> None:
    async def body(tx: Tx) -> list[tuple[str, Cause]]:
        over, restored = await tx.now() - engine.settings.default.reclaim_instance_interval, await restored_at(tx)
        return [
            (row["id"], _cause(engine, row))
            for row in await tx.all(_WAITING)
            if soft_deleted_at(row) <= over and not is_soft_deleted_before(row, restored)
        ]

    for server, cause in await journal.read(body):
        try:
            await submit(engine, Ask(kind="delete", server_id=server, cause=cause))
        except Refused as why:
            logger.warning("server %s cannot be reclaimed now: %s", server, why.message)


def _cause(engine: Engine, row: Row) -> Cause:
    request = f"req-{engine.world.ids.uuid()}"
    reason = "reclaim_instance_interval is over"
    owner = {"user_id": row["user_id"], "project_id": row["project_id"]}
    return Cause(**owner, through="periodic", request_id=request, reason=reason)
