"""Whoever takes of a quota locks it first, counts, then adds: all in one transaction. Else two who count at once both
find room for the last one."""

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
    """Nobody else takes of this project's quota before this transaction has ended. The row of no user stands for all:
    the users' own may not be there yet."""
    await tx.run(_LOCK, project_id=project, user_id="")


async def lock_user_quota(tx: Tx, user: str) -> None:
    """The same of what a user has in no project; the row of no project stands for it."""
    await tx.run(_LOCK, project_id="", user_id=user)
