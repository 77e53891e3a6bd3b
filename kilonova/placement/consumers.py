"""The consumers (the holders of allocations) with their project, user and type."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.schema.tables.placement import consumer_types, consumers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Store, Tx

UNKNOWN = "unknown"  # the type of a consumer that was created without one
NOBODY = "00000000-0000-0000-0000-000000000000"  # project and user of clients that do not say any (before 1.8)

READ_TYPES = Sql(select(consumer_types.c.id, consumer_types.c.name).where(in_list(consumer_types.c.name, "names")))
INSERT_TYPE = Sql(insert_unless_there(consumer_types).values(name=bindparam("name")).on_conflict_do_nothing())
READ = Sql(
    select(consumers, consumer_types.c.name.label("type_name"))
    .outerjoin(consumer_types, consumer_types.c.id == consumers.c.type_id)
    .where(consumers.c.uuid == bindparam("uuid"))
)


class Consumer(msgspec.Struct, frozen=True):
    uuid: str
    project_id: str
    user_id: str
    type_name: str | None
    generation: int
    updated_at: float


async def find(tx: Tx, uuid: str) -> Consumer | None:
    row = await tx.one(READ, uuid=uuid)
    return None if row is None else Consumer(*(row[name] for name in Consumer.__struct_fields__))


async def read(store: Store, uuid: str) -> Consumer | None:
    async def body(tx: Tx) -> Consumer | None:
        return await find(tx, uuid)

    return await store.read(body, few=True)


async def type_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of consumer types, and create the missing ones."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    ids = await _read_types(tx, wanted)
    if missing := [name for name in wanted if name not in ids]:
        await tx.many(INSERT_TYPE, [{"name": name} for name in missing])
        ids |= await _read_types(tx, missing)
    return ids


async def _read_types(tx: Tx, names: list[str]) -> dict[str, int]:
    return {row["name"]: row["id"] for row in await tx.all(READ_TYPES, names=names)}
