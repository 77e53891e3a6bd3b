"""Resource classes by name; the standard ones appear on first use."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.store.statements import Sql, in_list
from kilonova.store.tables.placement import resource_classes
from kilonova.world import Tx

VCPU = "VCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
STANDARD = (VCPU, MEMORY_MB, DISK_GB)

READ = Sql(select(resource_classes.c.id, resource_classes.c.name).where(in_list(resource_classes.c.name, "names")))
INSERT = Sql(insert_unless_there(resource_classes).values(name=bindparam("name")).on_conflict_do_nothing())


async def class_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    """Ids by name; unknown names are inserted. Not cached: an id may be rolled back with its transaction."""
    wanted = sorted(set(names))
    ids = await _read(tx, wanted)
    missing = [name for name in wanted if name not in ids]
    if missing:
        await tx.many(INSERT, [{"name": name} for name in missing])
        ids |= await _read(tx, missing)  # read again: somebody else may have inserted them first
    return ids


async def _read(tx: Tx, names: list[str]) -> dict[str, int]:
    return {row["name"]: row["id"] for row in await tx.all(READ, names=names)}
