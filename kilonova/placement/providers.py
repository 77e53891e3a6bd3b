"""Resource providers as clients of the API see them: read, create, rename, set the parent.

Every write marks the provider's row, so that snapshots notice. Generations do not guard a name or a parent.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, or_, select, update
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Conflict, Refused
from kilonova.placement import tree
from kilonova.placement.inventories import LOCK_PROVIDER
from kilonova.schema.tables.placement import resource_providers
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

_PARENT = resource_providers.alias("parent")
_ROOT = resource_providers.alias("root")
SELECT = (
    select(resource_providers, _PARENT.c.uuid.label("parent_uuid"), _ROOT.c.uuid.label("root_uuid"))
    .outerjoin(_PARENT, _PARENT.c.id == resource_providers.c.parent_id)
    .outerjoin(_ROOT, _ROOT.c.id == resource_providers.c.root_id)
)
READ = Sql(SELECT.where(resource_providers.c.uuid == bindparam("uuid")))
READ_SAME = Sql(
    select(resource_providers.c.uuid, resource_providers.c.name).where(
        or_(resource_providers.c.uuid == bindparam("uuid"), resource_providers.c.name == bindparam("name"))
    )
)
_SET_BY_DATABASE = ("id", "registration")
INSERT = Sql(
    insert_unless_there(resource_providers)
    .values(
        {column.name: bindparam(column.name) for column in resource_providers.c if column.name not in _SET_BY_DATABASE}
    )
    .on_conflict_do_nothing()
)
MAKE_ROOT = Sql(
    update(resource_providers)
    .where(resource_providers.c.uuid == bindparam("at_uuid"))
    .values(root_id=resource_providers.c.id)
)
RENAME = Sql(
    update(resource_providers)
    .where(resource_providers.c.id == bindparam("provider"))
    .values(name=bindparam("new_name"), mark=bindparam("mark"), updated_at=bindparam("updated_at"))
)


class Provider(msgspec.Struct, frozen=True):
    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    root_id: int
    parent_uuid: str | None
    root_uuid: str
    updated_at: float


def provider_of(row: Row) -> Provider:
    return Provider(*(row[name] for name in Provider.__struct_fields__))


async def find(tx: Tx, uuid: str) -> Provider:
    row = await tx.one(READ, uuid=uuid)
    if row is None:
        raise missing(uuid)
    return provider_of(row)


async def lock(tx: Tx, uuid: str, generation: int | None = None) -> Provider:
    """Lock the provider until this transaction ends. Refused if it is not of that generation."""
    if await tx.one(LOCK_PROVIDER, uuid=uuid) is None:
        raise missing(uuid)
    provider = await find(tx, uuid)  # read after the lock: it may have changed while we waited
    if generation is not None and generation != provider.generation:
        text = f"resource provider generation conflict: actual: {provider.generation}, given: {generation}. "
        text += "Resource provider's generation already changed. Please update the generation and try again."
        raise Refused("generation_conflict", text)
    return provider


def missing(uuid: str) -> Refused:
    return Refused("no_such_provider", f"No resource provider with uuid {uuid[:60]} found")


async def read(store: Store, uuid: str) -> Provider:
    async def body(tx: Tx) -> Provider:
        return await find(tx, uuid)

    return await store.read(body, few=True)


async def create(store: Store, uuid: str, name: str, parent: str | None) -> Provider:
    async def body(tx: Tx) -> Provider:
        above = await _parent(tx, uuid, parent) if parent is not None else None
        now = await tx.now()
        inserted = await tx.run(
            INSERT,
            uuid=uuid,
            name=name,
            generation=0,
            root_id=above.root_id if above else None,
            parent_id=above.id if above else None,
            accepting=1,
            mark=await tx.mark(),
            created_at=now,
            updated_at=now,
        )
        if not inserted:
            raise await _taken(tx, uuid, name)
        if above is None:
            await tx.run(MAKE_ROOT, at_uuid=uuid)
        return await find(tx, uuid)

    return await store.write(body)


async def _parent(tx: Tx, uuid: str, parent: str) -> Provider:
    """Lock and return the parent, so that it is neither deleted nor moved before the child exists."""
    if parent == uuid:
        raise Refused("bad_parent", "parent provider UUID cannot be same as UUID; leave the parent out for a root")
    try:
        return await lock(tx, parent)
    except Refused:
        raise tree.no_parent(parent) from None


async def _taken(tx: Tx, uuid: str, name: str) -> Refused:
    rows = await tx.all(READ_SAME, uuid=uuid, name=name)
    what = [f"uuid: {uuid}"] if any(row["uuid"] == uuid for row in rows) else []
    what += [f"name: {name}"] if any(row["name"] == name for row in rows) else []
    return Refused("duplicate_name", f"Conflicting resource provider {', '.join(what)} already exists.")


async def change(store: Store, uuid: str, name: str, parent: tree.NewParent, *, may_move: bool) -> Provider:
    """Change the name, the parent, or both. `may_move`: a provider that has a parent may get another one."""

    async def body(tx: Tx) -> Provider:
        if parent is not tree.AS_IT_IS:
            await tree.lock_trees(tx, [uuid, parent] if isinstance(parent, str) else [uuid])
        provider = await lock(tx, uuid)
        for row in await tx.all(READ_SAME, uuid=uuid, name=name):
            if row["uuid"] != uuid:
                raise Refused("duplicate_name", f"Conflicting resource provider {name} already exists.")
        mark, now = await tx.mark(), await tx.now()
        await tx.run(RENAME, provider=provider.id, new_name=name, mark=mark, updated_at=now)
        if parent is not tree.AS_IT_IS:
            await tree.put_below(tx, provider.id, parent, may_move=may_move)
        return await find(tx, uuid)

    try:
        return await store.write(body)
    except Conflict:  # the name was taken between our look and our write
        raise Refused("duplicate_name", f"Conflicting resource provider {name} already exists.") from None
