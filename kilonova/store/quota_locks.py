"""Locks of quotas. Every use of a quota locks it first, counts, then adds, all in one transaction: else two concurrent
requests could both get the last one."""

from __future__ import annotations

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert as insert_or_else

from kilonova.schema.tables.quotas import quota_usages
from kilonova.store.statements import Sql
from kilonova.world import Tx

_LOCK = Sql(
    insert_or_else(quota_usages)
    .values(project_id=bindparam("project_id"), user_id=bindparam("user_id"), instances=0, cores=0, ram=0)
    # changes nothing, but locks a row that was there
    .on_conflict_do_update(index_elements=["project_id", "user_id"], set_={"instances": quota_usages.c.instances})
)


async def lock_project_quota(tx: Tx, project: str) -> None:
    """Lock this project's quota until this transaction ends. The row without a user locks all: the users' own rows
    may not exist yet."""
    await tx.run(_LOCK, project_id=project, user_id="")


async def lock_user_quota(tx: Tx, user: str) -> None:
    """Lock a user's quota outside of projects, by the row of no project."""
    await tx.run(_LOCK, project_id="", user_id=user)
