"""How much a project uses and may use; -1 means without limit."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.control import quotas, server_mappings
from kilonova.world import Tx

DEFAULTS = {"instances": -1, "cores": -1, "ram": -1}

_USED = Sql(
    select(
        func.count().label("instances"),
        func.coalesce(func.sum(server_mappings.c.vcpus), 0).label("cores"),
        func.coalesce(func.sum(server_mappings.c.memory_mb), 0).label("ram"),
    ).where(
        server_mappings.c.project_id == bindparam("project_id"),
        server_mappings.c.queued_for_delete == 0,
    )
)


async def set_limit(tx: Tx, project: str, resource: str, limit: int) -> None:
    if not await rows.change(tx, quotas, {"hard_limit": limit}, project_id=project, resource=resource):
        await rows.put(tx, quotas, project_id=project, resource=resource, hard_limit=limit)


async def exceeded(tx: Tx, project: str, delta: dict[str, int]) -> list[str]:
    """One sentence per resource that would be over its limit; an empty list when all is well."""
    row = await tx.one(_USED, project_id=project)
    assert row is not None
    limits = {r["resource"]: r["hard_limit"] for r in await rows.fetch_all(tx, quotas, project_id=project)}
    over = []
    for resource, default in DEFAULTS.items():
        limit, used, more = limits.get(resource, default), int(row[resource]), delta.get(resource, 0)
        if 0 <= limit < used + more:
            over.append(f"{resource}: requested {more}, used {used} of {limit}")
    return over
