"""Aggregates: groups of providers, known by uuid alone, created on first use."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.placement import ledger, providers
from kilonova.placement.providers import Provider
from kilonova.schema.tables.placement import aggregates, provider_aggregates
from kilonova.store.statements import Sql, in_list
from kilonova.world import Store, Tx

READ_IDS = Sql(select(aggregates.c.id, aggregates.c.uuid).where(in_list(aggregates.c.uuid, "uuids")))
INSERT = Sql(insert_unless_there(aggregates).values(uuid=bindparam("uuid")).on_conflict_do_nothing())
READ_OF_PROVIDER = Sql(
    select(aggregates.c.id, aggregates.c.uuid)
    .join(provider_aggregates, provider_aggregates.c.aggregate_id == aggregates.c.id)
    .where(provider_aggregates.c.provider_id == bindparam("provider"))
    .order_by(aggregates.c.id)
)
JOIN = Sql(
    insert_unless_there(provider_aggregates)
    .values(provider_id=bindparam("provider"), aggregate_id=bindparam("aggregate"))
    .on_conflict_do_nothing()
)
LEAVE = Sql(
    delete(provider_aggregates).where(
        provider_aggregates.c.provider_id == bindparam("provider"),
        provider_aggregates.c.aggregate_id == bindparam("aggregate"),
    )
)


async def of_provider(store: Store, uuid: str) -> tuple[Provider, list[str]]:
    async def body(tx: Tx) -> tuple[Provider, list[str]]:
        provider = await providers.find(tx, uuid)
        return provider, [row["uuid"] for row in await tx.all(READ_OF_PROVIDER, provider=provider.id)]

    return await store.read(body, few=True)


async def set_aggregates(
    store: Store, uuid: str, wanted: Sequence[str], generation: int | None, *, raises: bool
) -> Provider:
    """Set the provider's aggregates. `raises`: raise the provider's generation; older clients leave it as it is."""

    async def body(tx: Tx) -> Provider:
        ids = await _ids(tx, wanted)
        provider = await providers.lock(tx, uuid, generation)
        before = {row["id"] for row in await tx.all(READ_OF_PROVIDER, provider=provider.id)}
        after = set(ids.values())
        for statement, which in ((LEAVE, before - after), (JOIN, after - before)):
            if which:
                await tx.many(statement, [{"provider": provider.id, "aggregate": each} for each in sorted(which)])
        now, mark = await tx.now(), await tx.mark()
        await tx.run(ledger.TOUCH_PROVIDER, provider=provider.id, raised=int(raises), mark=mark, updated_at=now)
        return await providers.find(tx, uuid)

    return await store.write(body)


async def join_aggregate(store: Store, uuid: str, aggregate: str) -> None:
    await _member(store, uuid, aggregate, JOIN)


async def leave_aggregate(store: Store, uuid: str, aggregate: str) -> None:
    await _member(store, uuid, aggregate, LEAVE)


async def _member(store: Store, uuid: str, aggregate: str, statement: Sql) -> None:
    """Add or remove a provider in one statement. Repeating it changes nothing."""

    async def body(tx: Tx) -> None:
        ids = await _ids(tx, [aggregate])
        provider = await providers.lock(tx, uuid)
        if await tx.run(statement, provider=provider.id, aggregate=ids[aggregate]):
            now, mark = await tx.now(), await tx.mark()
            await tx.run(ledger.TOUCH_PROVIDER, provider=provider.id, raised=1, mark=mark, updated_at=now)

    await store.write(body)


async def _ids(tx: Tx, uuids: Sequence[str]) -> dict[str, int]:
    ids = {row["uuid"]: row["id"] for row in await tx.all(READ_IDS, uuids=list(uuids))}
    missing = sorted(set(uuids) - ids.keys())
    if missing:
        await tx.many(INSERT, [{"uuid": uuid} for uuid in missing])
        ids = {row["uuid"]: row["id"] for row in await tx.all(READ_IDS, uuids=list(uuids))}
    return ids
