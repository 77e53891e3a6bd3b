"""A host that is taken out of the cloud for good: its record, its place in the books, its cell. Or out of its cell, to
join another one.

Refused while anything of anybody is there, or while its agent answers: it would only join again. The record in the
cell goes last, so that a request that was cut off can be repeated.
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, or_, select

from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.operations.hosts import find_host
from kilonova.placement.inventories import set_accepting
from kilonova.placement.refusals import NoSuchProvider
from kilonova.placement.removal import remove_provider
from kilonova.services.compute.aggregates import forget_host as leave_aggregates
from kilonova.services.compute.cells import keep_cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.store.open import CELL0
from kilonova.store.statements import Sql
from kilonova.store.tables import cell, control
from kilonova.world import Store, Tx

_SERVERS = Sql(
    select(func.count().label("n")).where(cell.servers.c.host == bindparam("host"), cell.servers.c.deleted == 0)
)
_MOVES = Sql(
    select(func.count().label("n")).where(
        cell.migrations.c.open == 1,
        or_(cell.migrations.c.source_host == bindparam("host"), cell.migrations.c.dest_host == bindparam("host")),
    )
)
_COPIES = Sql(select(func.count().label("n")).where(cell.copies.c.host == bindparam("host")))
_DEBTS = Sql(select(func.count().label("n")).where(cell.debts.c.host == bindparam("host")))
REASONS = (
    (_SERVERS, "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."),
    (
        _MOVES,
        "Unable to delete compute service that has in-progress migrations. "
        "Complete the migrations or delete the instances first.",
    ),
    (
        _COPIES,
        "Unable to delete compute service whose host has copies of servers. Wait until they are removed, then retry.",
    ),
    (
        _DEBTS,
        "Unable to delete compute service whose host has stale guest copies. Start its agent to remove them.",
    ),
)


async def forget_host(
    engine: Engine, cell_name: str, name: str, provider: str, *, next_cell: str | None = None
) -> None:
    """With `next_cell` it may answer: that is where it joins again."""
    db, journal = engine.world.db, engine.world.db.cell(cell_name)

    async def check(tx: Tx) -> None:
        await _refuse_unless_empty(tx, name)
        if next_cell is None:
            await _refuse_if_heard(tx, name, engine.limits.service_down_time)

    async def drop(tx: Tx) -> None:
        await rows.fetch(tx, cell.hosts, lock=True, name=name)
        await check(tx)
        await rows.remove(tx, cell.host_hardware, host=name)
        await rows.remove(tx, cell.hosts, name=name)

    async def unmap(tx: Tx) -> None:
        if next_cell is None:
            await rows.remove(tx, control.host_mappings, host=name)
            await leave_aggregates(tx, name)
        else:
            await keep_cell(tx, db, next_cell)
            await rows.change(tx, control.host_mappings, {"cell": next_cell}, host=name)

    await journal.read(check)
    await _close(db.placement, provider)
    await remove_provider(db.placement, provider)
    try:
        await engine.write(db.control, unmap)
    except Refused:
        # its provider is gone: it registers anew, and that makes it again
        await engine.write(journal, lambda tx: raise_epoch(tx, name))
        raise
    await engine.write(journal, drop)
    # An agent that registered meanwhile made the provider again; left behind, its name would keep the host out.
    await remove_provider(db.placement, provider)


async def _close(placement: Store, provider: str) -> None:
    try:
        await set_accepting(placement, provider, False)
    except NoSuchProvider:
        return  # an earlier request came so far


async def move_host(engine: Engine, name: str, to: str) -> None:
    """Into another cell, without anything on it."""
    journal, row = await find_host(engine, name)
    if to not in engine.world.db.cells() or to == CELL0:
        raise Refused("not_found", f"cell {to[:80]}: not found, or not for hosts; `kilonova cell list` shows them")
    if journal.name != to:
        await forget_host(engine, journal.name, name, row["provider_id"], next_cell=to)


async def _refuse_unless_empty(tx: Tx, name: str) -> None:
    for statement, sentence in REASONS:
        found = await tx.one(statement, host=name)
        if found is not None and found["n"]:
            raise Refused("host_in_use", sentence)


async def _refuse_if_heard(tx: Tx, name: str, down_after: float) -> None:
    row = await rows.fetch(tx, cell.hosts, name=name)
    if row is None:
        return
    silent = await tx.now() - row["last_seen"]
    if silent <= down_after:
        raise Refused(
            "host_in_use",
            f"host {name}: its agent answered {silent:.0f} s ago and would register again; stop it, and retry "
            f"when the host has been silent for {down_after:.0f} s",
        )
