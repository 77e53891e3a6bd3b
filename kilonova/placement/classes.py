"""Resource classes by name; the standard ones appear on first use, custom ones are created, renamed and deleted."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, delete, exists, select, update
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Conflict, Refused
from kilonova.placement.names import is_standard_class, standard_classes, unknown_classes
from kilonova.schema.tables.placement import inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Tx

VCPU = "VCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
STANDARD = (VCPU, MEMORY_MB, DISK_GB)

READ = Sql(select(resource_classes.c.id, resource_classes.c.name).where(in_list(resource_classes.c.name, "names")))
INSERT = Sql(insert_unless_there(resource_classes).values(name=bindparam("name")).on_conflict_do_nothing())
READ_ALL = Sql(select(resource_classes.c.name).order_by(resource_classes.c.id))
# Locked so that no class is deleted while another transaction is about to offer it.
SHARE = Sql(
    select(resource_classes.c.id)
    .where(in_list(resource_classes.c.name, "names"))
    .order_by(resource_classes.c.id)
    .with_for_update(read=True)
)
LOCK = Sql(select(resource_classes.c.id).where(resource_classes.c.name == bindparam("name")).with_for_update())
IS_OFFERED = Sql(select(exists().where(inventories.c.class_id == bindparam("class_")).label("offered")))
DELETE = Sql(delete(resource_classes).where(resource_classes.c.id == bindparam("class_")))
RENAME = Sql(
    update(resource_classes).where(resource_classes.c.id == bindparam("class_")).values(name=bindparam("new_name"))
)
MARK_PROVIDERS = Sql(
    update(resource_providers)
    .where(
        resource_providers.c.id.in_(
            select(inventories.c.provider_id).where(inventories.c.class_id == bindparam("class_"))
        )
    )
    .values(mark=bindparam("mark"))
)


async def class_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    """Return the ids by name; unknown names are inserted. They are not cached: an id may be rolled back with its
    transaction."""
    wanted = sorted(set(names))
    ids = await _read(tx, wanted)
    missing = [name for name in wanted if name not in ids]
    if missing:
        await tx.many(INSERT, [{"name": name} for name in missing])
        ids |= await _read(tx, missing)  # read again: another transaction may have inserted them first
    return ids


async def _read(tx: Tx, names: list[str]) -> dict[str, int]:
    return {row["name"]: row["id"] for row in await tx.all(READ, names=names)}


async def known_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    """Return ids as `class_ids` does, but only of existing names: standard, or created before. They stay until this
    transaction ends."""
    wanted = sorted(set(names))
    if unknown := await unknown_classes(tx, wanted):
        raise Refused("unknown_class", f"No such resource class {', '.join(unknown)[:300]}.")
    ids = await class_ids(tx, wanted)
    if len(await tx.all(SHARE, names=wanted)) < len(ids):
        raise Conflict("a resource class was deleted concurrently")
    return ids


# -- the classes themselves -------------------------------------------------------------------------------------------


async def list_classes(store: Store) -> list[str]:
    """The standard ones in their own order, then the others in order of creation."""

    async def body(tx: Tx) -> list[str]:
        return [row["name"] for row in await tx.all(READ_ALL)]

    others = [name for name in await store.read(body) if not is_standard_class(name)]
    return [*standard_classes(), *others]


async def is_known(store: Store, name: str) -> bool:
    async def body(tx: Tx) -> bool:
        return not await unknown_classes(tx, [name])

    return is_standard_class(name) or await store.read(body, few=True)


async def create(store: Store, name: str) -> bool:
    """Create a resource class. Return False if it exists."""

    async def body(tx: Tx) -> bool:
        return await tx.run(INSERT, name=name) > 0

    return not is_standard_class(name) and await store.write(body)


async def rename(store: Store, name: str, new_name: str) -> None:
    async def body(tx: Tx) -> None:
        row = await _lock(tx, name)
        if not await unknown_classes(tx, [new_name]) and new_name != name:
            raise Refused("class_exists", f"Resource class already exists: {new_name}")
        await tx.run(RENAME, class_=row["id"], new_name=new_name)
        await tx.run(MARK_PROVIDERS, class_=row["id"], mark=await tx.mark())

    _refuse_standard("update", name)
    await store.write(body)


async def delete_class(store: Store, name: str) -> None:
    async def body(tx: Tx) -> None:
        row = await _lock(tx, name)
        offered = await tx.one(IS_OFFERED, class_=row["id"])
        if offered is not None and offered["offered"]:
            text = f"Error in delete resource class: {name} cannot be deleted. Class is in use in inventory."
            raise Refused("in_use", text)
        await tx.run(DELETE, class_=row["id"])

    _refuse_standard("delete", name)
    await store.write(body)


async def _lock(tx: Tx, name: str) -> Row:
    row = await tx.one(LOCK, name=name)
    if row is None:
        raise missing(name)
    return row


def missing(name: str) -> Refused:
    return Refused("no_such_class", f"No such resource class {name[:300]}.")


def _refuse_standard(verb: str, name: str) -> None:
    if is_standard_class(name):
        raise Refused("standard_name", f"Error in {verb} resource class: Cannot {verb} standard resource class {name}")
