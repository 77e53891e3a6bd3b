"""The time at which a database's records were restored: older records may be out of date (law 15)."""

from __future__ import annotations

from kilonova.domain.details import details_from
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.world import Row, Tx


async def restored_at(tx: Tx) -> float:
    """Return when `kilonova db restored` was last run, by the database's clock; -1: never."""
    this = await rows.fetch(tx, this_store, id=1)
    return this["restored_at"] if this is not None and this["restored_at"] is not None else -1.0


def soft_deleted_at(row: Row) -> float:
    """Return when a soft-deleted server was deleted, by the database's clock."""
    return details_from(row["details"]).soft_deleted_at or 0.0


def is_soft_deleted_before(row: Row, restored: float) -> bool:
    """Return True if a server was soft-deleted before its records were restored, at `restored`.

    The turn decides, too: after the restore the database may be on another machine, with another clock.
    """
    return row["turn"] <= (row["turn_floor"] or 0) or soft_deleted_at(row) <= restored
