"""How much a project uses and may use; -1 means without limit.

A limit is the user's own, else the project's, else the default class's, else the configuration's. What one user may
have within a project only matters where an administrator has set it: everybody's use is part of the project's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, bindparam, func, literal, select, union_all

from kilonova.quota.resources import COUNTED, EVERYTHING, UNLIMITED, Limits
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.control import server_mappings
from kilonova.store.tables.quotas import quota_classes, quotas
from kilonova.world import Tx

DEFAULT_CLASS = "default"

_AMOUNTS = select(
    func.count().label("instances"),
    func.coalesce(func.sum(server_mappings.c.vcpus), 0).label("cores"),
    func.coalesce(func.sum(server_mappings.c.memory_mb), 0).label("ram"),
).where(server_mappings.c.project_id == bindparam("project_id"), server_mappings.c.queued_for_delete == 0)
_USED = Sql(_AMOUNTS)
_USED_BY = Sql(_AMOUNTS.where(server_mappings.c.user_id == bindparam("user_id")))
_LIMITS = Sql(
    union_all(
        select(quotas.c.resource, quotas.c.hard_limit, quotas.c.user_id, literal(0).label("by_default")).where(
            quotas.c.project_id == bindparam("project_id")
        ),
        select(quota_classes.c.resource, quota_classes.c.hard_limit, literal(""), literal(1)).where(
            quota_classes.c.class_name == DEFAULT_CLASS
        ),
    )
)


class Given:
    """What is set for a project, in one read: its own limits, its users', and the defaults that they replace."""

    def __init__(self, defaults: Limits) -> None:
        self.defaults = dict(defaults)
        self.project: dict[str, int] = {}
        self.users: dict[str, dict[str, int]] = {}

    def of_project(self, resource: str) -> int:
        return self.project.get(resource, self.defaults.get(resource, UNLIMITED))

    def of_user(self, user: str, resource: str) -> int:
        return self.users.get(user, {}).get(resource, self.of_project(resource))


async def given(tx: Tx, project: str, defaults: Limits) -> Given:
    found = Given(defaults)
    for row in await tx.all(_LIMITS, project_id=project):
        if row["by_default"]:
            found.defaults[row["resource"]] = row["hard_limit"]
        elif row["user_id"]:
            found.users.setdefault(row["user_id"], {})[row["resource"]] = row["hard_limit"]
        else:
            found.project[row["resource"]] = row["hard_limit"]
    return found


async def used(tx: Tx, project: str, user: str = "") -> dict[str, int]:
    """Counted anew each time: there is no number that could be wrong."""
    row = await (tx.one(_USED_BY, project_id=project, user_id=user) if user else tx.one(_USED, project_id=project))
    assert row is not None
    return {resource: int(row[resource]) for resource in COUNTED}


async def set_limit(tx: Tx, project: str, resource: str, limit: int, user: str = "") -> None:
    await put_limit(tx, quotas, limit, project_id=project, user_id=user, resource=resource)


async def put_limit(tx: Tx, table: Table, limit: int, **of: str) -> None:
    """Whether there was one or not; another request may insert it at the same moment."""
    keys: dict[str, Any] = dict(of)
    if not await rows.change(tx, table, {"hard_limit": limit}, **keys) and not await rows.put(
        tx, table, unless_there=True, **keys, hard_limit=limit
    ):
        await rows.change(tx, table, {"hard_limit": limit}, **keys)


async def exceeded(
    tx: Tx, project: str, delta: Mapping[str, int], *, user: str = "", defaults: Limits = EVERYTHING
) -> list[str]:
    """One sentence per resource that would be over its limit; an empty list when all is well."""
    found = await given(tx, project, defaults)
    over = await _over(tx, project, "", delta, {resource: found.of_project(resource) for resource in COUNTED})
    if over or user not in found.users:
        return over
    return await _over(tx, project, user, delta, {resource: found.of_user(user, resource) for resource in COUNTED})


async def _over(tx: Tx, project: str, user: str, delta: Mapping[str, int], limits: Limits) -> list[str]:
    """Nothing is counted where nothing is limited: a create costs the same in a project with 20,000 servers."""
    if all(limit < 0 for limit in limits.values()):
        return []
    amounts = await used(tx, project, user)
    return [
        f"{resource}: requested {delta.get(resource, 0)}, used {amounts[resource]} of {limit}"
        for resource, limit in limits.items()
        if 0 <= limit < amounts[resource] + delta.get(resource, 0)
    ]
