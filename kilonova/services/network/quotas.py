"""The limits on a project's records; -1 is unlimited. Usage is counted, never stored as a number that could drift, and
no further than the limit: the cost of a create does not grow with the number of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from sqlalchemy import Integer, bindparam, func, literal, select

from kilonova.domain.errors import Refused
from kilonova.records.quotas import LimitRows, Limits, ServiceQuotas
from kilonova.schema.tables.network import limits
from kilonova.services.network.kinds import KINDS
from kilonova.services.network.locks import lock_project
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

DEFAULTS = {
    "network": 100,
    "subnet": 100,
    "port": 500,
    "router": 10,
    "floatingip": 50,
    "security_group": 10,
    "security_group_rule": 100,
}


@cache
def _counted(kind: str, bounded: bool) -> Sql:
    table = KINDS[kind].table
    inner = select(literal(1).label("one")).where(table.c.project_id == bindparam("project_id"))
    if bounded:
        inner = inner.limit(bindparam("most", type_=Integer))
    return Sql(select(func.count().label("used")).select_from(inner.subquery()))


class NetworkQuotas(ServiceQuotas):
    def __init__(self, control: Store, defaults: Mapping[str, int] | None = None) -> None:
        super().__init__(control, LimitRows(limits), {**DEFAULTS, **(defaults or {})})
        self.configured: Limits = self._configured

    async def charge(self, tx: Tx, project_id: str, kind: str, count: int = 1) -> None:
        """Raise `Refused` if `count` more would exceed the limit. The caller has locked the project's row."""
        limit = await self._limit(tx, project_id, kind)
        if not await self._fits(tx, project_id, kind, count, limit):
            raise Refused("over_quota", f"Quota exceeded for resources: ['{kind}']. {limit} are allowed.")

    async def room(self, tx: Tx, project_id: str, kind: str, most: int) -> int:
        """Return how many more fit now, `most` at the most; nothing is locked."""
        limit = await self._limit(tx, project_id, kind)
        return most if limit < 0 else min(most, max(0, limit - await self._counted(tx, project_id, kind, limit)))

    async def _limit(self, tx: Tx, project_id: str, kind: str) -> int:
        return (await self._limits.given(tx, project_id, self._configured)).of_project(kind)

    async def _fits(self, tx: Tx, project_id: str, kind: str, count: int, limit: int) -> bool:
        return limit < 0 or await self._counted(tx, project_id, kind, limit) + count <= limit

    async def _counted(self, tx: Tx, project_id: str, kind: str, limit: int) -> int:
        """Count the project's records up to the limit."""
        row = await tx.one(_counted(kind, True), project_id=project_id, most=limit)
        return 0 if row is None else int(row["used"])

    async def show(self, project_id: str) -> dict[str, int]:
        async def body(tx: Tx) -> dict[str, int]:
            return (await self._limits.given(tx, project_id, self._configured)).all()

        return await self._control.read(body)

    async def all(self) -> dict[str, dict[str, int]]:
        """Return the limits that an administrator has set, by project."""

        async def body(tx: Tx) -> Sequence[Row]:
            return await rows.fetch_all(tx, limits)

        by_project: dict[str, dict[str, int]] = {}
        for row in await self._control.read(body):
            by_project.setdefault(row["project_id"], dict(self._configured))[row["resource"]] = row["hard_limit"]
        return by_project

    async def usage(self, project_id: str) -> dict[str, int]:
        async def body(tx: Tx) -> dict[str, int]:
            return {kind: await self._used(tx, project_id, kind) for kind in self._configured}

        return await self._control.read(body)

    async def set(self, project_id: str, wanted: Mapping[str, int], *, check: bool = False) -> None:
        """Set limits. With `check`, a limit below the usage is refused."""

        async def body(tx: Tx) -> None:
            await lock_project(tx, project_id)
            for kind, limit in wanted.items():
                if check and 0 <= limit < (used := await self._used(tx, project_id, kind)):
                    raise Refused("invalid_quota", f"Quota limit {limit} of {kind} is below the {used} in use.")
                await self._limits.put(tx, project_id, kind, limit)

        await self._control.write(body)

    async def _used(self, tx: Tx, project_id: str, kind: str) -> int:
        row = await tx.one(_counted(kind, False), project_id=project_id)
        return 0 if row is None else int(row["used"])
