"""Totals and use of providers, for views."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from kilonova.schema.tables.placement import inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Tx

READ = Sql(
    select(
        resource_providers.c.uuid,
        resource_classes.c.name,
        inventories.c.total,
        inventories.c.reserved,
        inventories.c.used,
    )
    .join(inventories, inventories.c.provider_id == resource_providers.c.id)
    .join(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(in_list(resource_providers.c.uuid, "uuids"))
)


class Amount(msgspec.Struct, frozen=True):
    total: int = 0
    reserved: int = 0
    used: int = 0


async def read_amounts(store: Store, providers: Sequence[str]) -> dict[str, dict[str, Amount]]:
    """Return the amounts by provider and resource class."""

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(READ, uuids=list(providers))

    amounts: dict[str, dict[str, Amount]] = {}
    for row in await store.read(body):
        amounts.setdefault(row["uuid"], {})[row["name"]] = Amount(row["total"], row["reserved"], row["used"])
    return amounts
