"""Providers, inventories and allocations as they are recorded, for showing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from kilonova.placement import consumers
from kilonova.placement.consumers import Consumer
from kilonova.placement.ledger import CONSUMER
from kilonova.placement.providers import Provider, find
from kilonova.schema.tables import placement as tables
from kilonova.schema.tables.placement import allocations, resource_classes, resource_providers
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

_ALLOCATIONS = (
    select(
        allocations.c.consumer,
        allocations.c.used,
        resource_classes.c.name,
        resource_providers.c.uuid,
        resource_providers.c.generation,
        tables.consumers.c.generation.label("consumer_generation"),
    )
    .join(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .join(resource_providers, resource_providers.c.id == allocations.c.provider_id)
    .join(tables.consumers, tables.consumers.c.uuid == allocations.c.consumer)
    .order_by(allocations.c.id)
)
_OF_CONSUMER = Sql(_ALLOCATIONS.where(allocations.c.consumer == bindparam("consumer")))
_OWN = Sql(_ALLOCATIONS.where(allocations.c.consumer == bindparam("consumer"), allocations.c.holder == CONSUMER))
_OF_PROVIDER = Sql(_ALLOCATIONS.where(allocations.c.provider_id == bindparam("provider")))


async def of_consumer(store: Store, consumer: str) -> tuple[Consumer | None, Sequence[Row]]:
    async def body(tx: Tx) -> tuple[Consumer | None, Sequence[Row]]:
        return await consumers.find(tx, consumer), await tx.all(_OF_CONSUMER, consumer=consumer)

    return await store.read(body, few=True)


async def held_by(store: Store, consumer: str) -> dict[str, dict[str, int]]:
    """Return the consumer's own allocations by provider, without those that evacuations hold in its name."""

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OWN, consumer=consumer)

    held: dict[str, dict[str, int]] = {}
    for row in await store.read(body, few=True):
        held.setdefault(row["uuid"], {})[row["name"]] = row["used"]
    return held


async def of_provider(store: Store, uuid: str) -> tuple[Provider, Sequence[Row]]:
    async def body(tx: Tx) -> tuple[Provider, Sequence[Row]]:
        provider = await find(tx, uuid)
        return provider, await tx.all(_OF_PROVIDER, provider=provider.id)

    return await store.read(body)
