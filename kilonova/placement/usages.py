"""Usages: by a provider's consumers, or by those of a project."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import BigInteger, and_, bindparam, func, or_, select
from sqlalchemy import cast as sql_cast

from kilonova.placement.consumers import UNKNOWN
from kilonova.schema.tables.placement import allocations, consumer_types, consumers, resource_classes
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

ALL = "all"  # as a requested type: the sum over all types

_OF_PROJECT = and_(
    consumers.c.project_id == bindparam("project"),
    or_(bindparam("user") == "", consumers.c.user_id == bindparam("user")),
)
_JOINED = allocations.join(consumers, consumers.c.uuid == allocations.c.consumer).outerjoin(
    consumer_types, consumer_types.c.id == consumers.c.type_id
)
SUM = Sql(
    select(
        consumer_types.c.name.label("type_name"),
        resource_classes.c.name,
        sql_cast(func.sum(allocations.c.used), BigInteger).label("used"),
    )
    .select_from(_JOINED.join(resource_classes, resource_classes.c.id == allocations.c.class_id))
    .where(_OF_PROJECT)
    .group_by(consumer_types.c.name, resource_classes.c.name)
)
COUNT = Sql(
    select(consumer_types.c.name.label("type_name"), func.count(allocations.c.consumer.distinct()).label("consumers"))
    .select_from(_JOINED)
    .where(_OF_PROJECT)
    .group_by(consumer_types.c.name)
)


class Usage(msgspec.Struct):
    consumers: int = 0
    used: dict[str, int] = {}

    def add(self, name: str, amount: int) -> None:
        self.used[name] = self.used.get(name, 0) + amount


async def of_project(store: Store, project: str, user: str = "") -> dict[str, Usage]:
    """Return the usage by consumer type."""

    async def body(tx: Tx) -> tuple[Sequence[Row], Sequence[Row]]:
        return await tx.all(SUM, project=project, user=user), await tx.all(COUNT, project=project, user=user)

    sums, counts = await store.read(body)
    usages = {row["type_name"] or UNKNOWN: Usage(row["consumers"]) for row in counts}
    for row in sums:
        usages[row["type_name"] or UNKNOWN].add(row["name"], row["used"])
    return usages


def together(usages: dict[str, Usage]) -> Usage:
    total = Usage()
    for usage in usages.values():
        total.consumers += usage.consumers
        for name, amount in usage.used.items():
            total.add(name, amount)
    return total
