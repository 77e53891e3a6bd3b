"""Providers, inventories and allocations as they are recorded, for showing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.placement import allocations, inventories, resource_classes, resource_providers
from kilonova.world import Row, Store, Tx

_PROVIDERS = Sql(select(resource_providers).order_by(resource_providers.c.name))
_INVENTORIES = Sql(
    select(inventories, resource_classes.c.name)
    .join(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(inventories.c.provider_id == bindparam("provider"))
    .order_by(resource_classes.c.name)
)
_ALLOCATIONS = (
    select(
        allocations.c.consumer,
        allocations.c.used,
        resource_classes.c.name,
        resource_providers.c.uuid,
        resource_providers.c.generation,
    )
    .join(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .join(resource_providers, resource_providers.c.id == allocations.c.provider_id)
)
_OF_CONSUMER = Sql(_ALLOCATIONS.where(allocations.c.consumer == bindparam("consumer")))
_OF_PROVIDER = Sql(_ALLOCATIONS.where(allocations.c.provider_id == bindparam("provider")))


async def providers(store: Store) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_PROVIDERS)

    return await store.read(body)


async def provider(store: Store, uuid: str) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, resource_providers, uuid=uuid)

    return await store.read(body)


async def inventory(store: Store, provider_id: int) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_INVENTORIES, provider=provider_id)

    return await store.read(body)


async def of_consumer(store: Store, consumer: str) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OF_CONSUMER, consumer=consumer)

    return await store.read(body)


async def of_provider(store: Store, provider_id: int) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OF_PROVIDER, provider=provider_id)

    return await store.read(body)
