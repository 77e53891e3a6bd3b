"""Remove a provider from the books. Only an empty one: allocations belong to their consumers.

A removed provider has no row for a mark, so a record of the removal has it: every older snapshot drops the provider at
its next sync. Records need not stay until the last reader has seen them. The oldest are cleared, and one record has the
highest cleared mark; a snapshot that is older than that loads everything again (snapshot.py).
"""

from __future__ import annotations

from sqlalchemy import bindparam, case, delete, func, select
from sqlalchemy.dialects.postgresql import insert as insert_or_else

from kilonova.domain.errors import Refused
from kilonova.placement.inventories import LOCK_PROVIDER
from kilonova.placement.snapshot_reading import ALL
from kilonova.schema.tables.placement import (
    allocations,
    inventories,
    provider_aggregates,
    provider_traits,
    removed_providers,
    resource_providers,
)
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

MOST_RECORDS = 1000  # records; a few dozen bytes each

_HELD = Sql(
    select(func.count(allocations.c.consumer.distinct()).label("consumers")).where(
        allocations.c.provider_id == bindparam("provider")
    )
)
_BELOW = Sql(select(func.count().label("children")).where(resource_providers.c.parent_id == bindparam("provider")))


def first_too_many(limit: int) -> Sql:
    return Sql(
        select(removed_providers.c.mark)
        .where(removed_providers.c.uuid != ALL)
        .order_by(removed_providers.c.mark.desc())
        .offset(limit)
        .limit(1)
    )


_FIRST_TOO_MANY = first_too_many(MOST_RECORDS)
_CLEAR = Sql(
    delete(removed_providers).where(removed_providers.c.mark <= bindparam("mark"), removed_providers.c.uuid != ALL)
)
_UP_TO = insert_or_else(removed_providers).values(uuid=ALL, mark=bindparam("mark"))
_NEWER = removed_providers.c.mark > _UP_TO.excluded.mark  # two at once: it never goes back
_CLEARED = Sql(
    _UP_TO.on_conflict_do_update(
        index_elements=["uuid"], set_={"mark": case((_NEWER, removed_providers.c.mark), else_=_UP_TO.excluded.mark)}
    )
)


async def remove_provider(store: Store, uuid: str) -> bool:
    """Remove it; False: it does not exist. A concurrent claim holds the provider's row, and is counted or refused."""

    async def body(tx: Tx) -> bool:
        row = await tx.one(LOCK_PROVIDER, uuid=uuid)
        if row is None:
            return False
        held, below = await tx.one(_HELD, provider=row["id"]), await tx.one(_BELOW, provider=row["id"])
        if below is not None and below["children"]:
            raise Refused("provider_has_children", f"provider {uuid} has {below['children']} providers below it")
        if held is not None and held["consumers"]:
            raise Refused("provider_in_use", f"provider {uuid} still holds claims of {held['consumers']} consumers")
        for table in (inventories, provider_traits, provider_aggregates):
            await rows.remove(tx, table, provider_id=row["id"])
        await rows.remove(tx, resource_providers, id=row["id"])
        await _record(tx, uuid)
        return True

    return await store.write(body)


async def _record(tx: Tx, uuid: str) -> None:
    """Record the removal. A provider may be created and removed under the same uuid many times: the last time
    counts."""
    await rows.put_or_change(tx, removed_providers, ("mark",), uuid=uuid, mark=await tx.mark())
    oldest = await tx.one(_FIRST_TOO_MANY)
    if oldest is not None:
        await tx.run(_CLEAR, mark=oldest["mark"])
        await tx.run(_CLEARED, mark=oldest["mark"])
