"""Check the books: all allocations by consumer and provider, and inventories whose `used` is not their sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import BigInteger, and_, func, select
from sqlalchemy import cast as sql_cast

from kilonova.schema.tables.placement import allocations, inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

_ALLOCATIONS = (
    select(
        allocations.c.consumer,
        resource_providers.c.uuid.label("provider"),
        resource_providers.c.name.label("provider_name"),
        resource_classes.c.name.label("resource_class"),
        allocations.c.holder,
        allocations.c.used,
    )
    .join(resource_providers, resource_providers.c.id == allocations.c.provider_id)
    .join(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .order_by(allocations.c.consumer, resource_providers.c.name, resource_classes.c.name, allocations.c.holder)
)
READ = Sql(_ALLOCATIONS)
_READ_OF = Sql(_ALLOCATIONS.where(in_list(allocations.c.consumer, "consumers")))
_HELD = (
    select(allocations.c.provider_id, allocations.c.class_id, func.sum(allocations.c.used).label("held"))
    .group_by(allocations.c.provider_id, allocations.c.class_id)
    .subquery()
)
_SLOTS = (
    select(inventories.c.provider_id, inventories.c.class_id)
    .union(select(allocations.c.provider_id, allocations.c.class_id))
    .subquery()
)
BALANCE = Sql(
    select(
        _SLOTS.c.provider_id,
        _SLOTS.c.class_id,
        resource_providers.c.name.label("provider_name"),
        resource_classes.c.name.label("resource_class"),
        inventories.c.used,
        sql_cast(func.coalesce(_HELD.c.held, 0), BigInteger).label("held"),
    )
    .select_from(_SLOTS)
    .outerjoin(
        inventories,
        and_(inventories.c.provider_id == _SLOTS.c.provider_id, inventories.c.class_id == _SLOTS.c.class_id),
    )
    .outerjoin(_HELD, and_(_HELD.c.provider_id == _SLOTS.c.provider_id, _HELD.c.class_id == _SLOTS.c.class_id))
    .outerjoin(resource_providers, resource_providers.c.id == _SLOTS.c.provider_id)
    .outerjoin(resource_classes, resource_classes.c.id == _SLOTS.c.class_id)
    .where(func.coalesce(inventories.c.used, -1) != func.coalesce(_HELD.c.held, 0))
    .order_by(_SLOTS.c.provider_id, _SLOTS.c.class_id)
)

ProviderHolder = tuple[str, str]  # provider's name (a host's is the host's own), holder
# consumer → provider and holder → class → amount; the shape of domain/owned.py
Held = dict[str, dict[ProviderHolder, dict[str, int]]]


class AllocationRow(msgspec.Struct, frozen=True):
    consumer: str
    provider: str
    provider_name: str
    resource_class: str
    holder: str
    used: int


class Imbalance(msgspec.Struct, frozen=True):
    """`used` is None where something is held of a class that the provider does not have."""

    provider: str
    resource_class: str
    used: int | None
    held: int


async def read_allocations(tx: Tx, consumers: Sequence[str] | None = None) -> list[AllocationRow]:
    """Return the allocations of these consumers, or of all."""
    names = AllocationRow.__struct_fields__
    rows = await tx.all(READ) if consumers is None else await tx.all(_READ_OF, consumers=list(consumers))
    return [AllocationRow(*(row[name] for name in names)) for row in rows]


def by_consumer(rows: Iterable[AllocationRow]) -> Held:
    held: Held = {}
    for row in rows:
        amounts = held.setdefault(row.consumer, {}).setdefault((row.provider_name, row.holder), {})
        amounts[row.resource_class] = row.used
    return held


async def balance(tx: Tx) -> list[Imbalance]:
    """Return the inventories whose `used` is not the sum of the allocations: must be empty at all times."""
    return [
        Imbalance(
            row["provider_name"] or str(row["provider_id"]),
            row["resource_class"] or str(row["class_id"]),
            row["used"],
            row["held"],
        )
        for row in await tx.all(BALANCE)
    ]
