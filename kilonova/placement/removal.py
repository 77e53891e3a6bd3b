"""Taking a host's provider out of the books. Only an empty one: what is held there belongs to somebody."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import Refused
from kilonova.placement.inventories import LOCK_PROVIDER
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.placement import (
    allocations,
    inventories,
    provider_aggregates,
    provider_traits,
    resource_providers,
)
from kilonova.world import Store, Tx

_HELD = Sql(
    select(func.count(allocations.c.consumer.distinct()).label("consumers")).where(
        allocations.c.provider_id == bindparam("provider")
    )
)
_BELOW = Sql(
    select(func.count().label("children")).where(
        resource_providers.c.root_id == bindparam("provider"), resource_providers.c.id != bindparam("provider")
    )
)


async def remove_provider(store: Store, uuid: str) -> bool:
    """False: there is none. A claim that is just being made holds the provider's row, and is counted or refused."""

    async def body(tx: Tx) -> bool:
        row = await tx.one(LOCK_PROVIDER, uuid=uuid)
        if row is None:
            return False
        held, below = await tx.one(_HELD, provider=row["id"]), await tx.one(_BELOW, provider=row["id"])
        if held is not None and held["consumers"]:
            raise Refused("provider_in_use", f"provider {uuid} still holds claims of {held['consumers']} consumers")
        if below is not None and below["children"]:
            raise Refused("provider_in_use", f"provider {uuid} has {below['children']} providers below it")
        for table in (inventories, provider_traits, provider_aggregates):
            await rows.remove(tx, table, provider_id=row["id"])
        await rows.remove(tx, resource_providers, id=row["id"])
        return True

    return await store.write(body)
