"""Remove a host from the cloud for good: its record, its provider, its mapping. Or remove it from its cell, to join
another one.

This is refused while a server is there, a move is in progress, or its agent answers: it would only join again. The
debts of the host are settled: its copies are no longer waited for, and the shares that evacuations held there are
freed. A host that only changes its cell is alive, and must have removed its copies first. The record in the cell goes
last, so that an interrupted request can be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import BindParameter, and_, bindparam, func, not_, or_, select

from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.hosts.states import cell_of_host, find_host
from kilonova.placement import claims
from kilonova.placement.inventories import set_accepting
from kilonova.placement.removal import remove_provider
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import STEP_IS_OPEN, steps
from kilonova.services.compute.aggregates import forget_host as leave_aggregates
from kilonova.services.compute.cells import keep_cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.store.open_stores import CELL0
from kilonova.store.statements import Sql
from kilonova.world import Body, Row, Store, Tx, World

Write = Callable[[Store, Body[None]], Awaitable[None]]  # of a transaction; whether it repeats one that failed, it knows

HOST: BindParameter[str] = bindparam("host")
_SERVERS = Sql(
    select(func.count().label("n")).where(
        or_(cell.servers.c.host == HOST, cell.servers.c.runner_host == HOST), cell.servers.c.deleted == 0
    )
)
# An evacuation that is done holds nothing but the share of its dead source.
WAITS_FOR_SOURCE = and_(cell.migrations.c.kind == "evacuation", cell.migrations.c.status == "done")
_MOVES = Sql(
    select(func.count().label("n")).where(
        cell.migrations.c.open == 1,
        or_(cell.migrations.c.source_host == HOST, cell.migrations.c.dest_host == HOST),
        not_(WAITS_FOR_SOURCE),
        not_(and_(cell.migrations.c.source_host == HOST, func.coalesce(cell.migrations.c.source_gone, 0) == 1)),
    )
)
_BUSY = Sql(
    select(func.count().label("n"))
    .join(cell.servers, cell.servers.c.id == cell.copies.c.server_id)
    .where(cell.copies.c.host == HOST, cell.servers.c.operation_id.is_not(None))
)
_STEPS = Sql(select(func.count().label("n")).where(STEP_IS_OPEN, steps.c.host == HOST))
_COPIES = Sql(select(func.count().label("n")).where(cell.copies.c.host == HOST))
_DEBTS = Sql(select(func.count().label("n")).where(cell.debts.c.host == HOST))
_SERVERS_WITH_COPIES = Sql(
    select(cell.copies.c.server_id).where(cell.copies.c.host == HOST).distinct().order_by(cell.copies.c.server_id)
)
_EVACUATED = Sql(
    select(cell.migrations.c.id, cell.migrations.c.server_id)
    .where(cell.migrations.c.source_host == HOST, cell.migrations.c.open == 1, WAITS_FOR_SOURCE)
    .order_by(cell.migrations.c.number)
)
IN_PROGRESS = (
    "Unable to delete compute service that has in-progress migrations. "
    "Complete the migrations or delete the instances first."
)
REASONS = (
    (_SERVERS, "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."),
    (_MOVES, IN_PROGRESS),
    (_BUSY, IN_PROGRESS),
    (_STEPS, IN_PROGRESS),
)
REASONS_OF_LIVING = (
    *REASONS,
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
    """Remove a host. With `next_cell`, where it joins again, its agent may still answer."""
    db, journal = engine.world.db, engine.world.db.cell(cell_name)

    async def check(tx: Tx) -> None:
        await refuse_unless_empty(tx, name, is_alive=next_cell is not None)
        if next_cell is None:
            await _refuse_if_heard(tx, name, engine.settings.default.service_down_time)

    await journal.read(check)
    await set_accepting(db.placement, provider, False)
    if next_cell is None:
        await free_shares(engine.world, journal, name, engine.write)
    await remove_provider(db.placement, provider)
    try:
        await unmap_host(engine.world, name, cell_name, engine.write, next_cell)
    except Refused:
        # its provider is gone: registering again makes a new one
        await engine.write(journal, lambda tx: raise_epoch(tx, name))
        raise
    await drop_record(journal, name, engine.write, check)
    # An agent that registered meanwhile made the provider again; left behind, its name would keep the host out.
    await remove_provider(db.placement, provider)


async def free_shares(world: World, journal: Store, name: str, write: Write) -> None:
    """Free what evacuations hold at their dead source, and complete them. Placement first: to free a share twice is
    harmless, to forget one is not."""

    async def find(tx: Tx) -> list[Row]:
        return list(await tx.all(_EVACUATED, host=name))

    evacuations = await journal.read(find)
    for row in evacuations:
        await claims.drop_holder(world.db.placement, row["server_id"], row["id"])

    async def complete(tx: Tx) -> None:
        done = {"status": "completed", "open": 0, "updated_at": world.clock.now()}
        for row in evacuations:
            await rows.change(tx, cell.migrations, done, id=row["id"], status="done")

    if evacuations:
        await write(journal, complete)


async def unmap_host(world: World, name: str, cell_name: str, write: Write, next_cell: str | None = None) -> None:
    """Remove the host's mapping in control, and its aggregate memberships unless it only changes its cell. A host that
    joined another cell under that name since an earlier attempt keeps both."""

    async def body(tx: Tx) -> None:
        if next_cell is None:
            if await rows.remove(tx, control.host_mappings, host=name, cell=cell_name):
                await leave_aggregates(tx, name)
        else:
            await keep_cell(tx, world.db, next_cell)
            mapping = await rows.fetch(tx, control.host_mappings, lock=True, host=name)
            # Two requests at once: the host may have joined the other one's cell, and its record there would be left.
            if mapping is None or mapping["cell"] not in (cell_name, next_cell):
                raise Refused("host_moved", f"host {name}: it is not in {cell_name} any more; retry the request")
            await rows.change(tx, control.host_mappings, {"cell": next_cell}, host=name)

    await write(world.db.control, body)


async def drop_record(journal: Store, name: str, write: Write, check: Body[None]) -> None:
    """Remove the host from its cell with all its debts, if `check` still agrees."""

    async def body(tx: Tx) -> None:
        # Lock servers before the host, as operations do: one that is accepted now waits, and finds no copy here.
        for row in await tx.all(_SERVERS_WITH_COPIES, host=name):
            await rows.fetch(tx, cell.servers, lock=True, id=row["server_id"])
        await rows.fetch(tx, cell.hosts, lock=True, name=name)
        await check(tx)
        for table in (cell.debts, cell.copies, cell.host_hardware):
            await rows.remove(tx, table, host=name)
        await rows.remove(tx, cell.hosts, name=name)

    await write(journal, body)


async def move_host(engine: Engine, name: str, to: str) -> None:
    """Move the host, with nothing on it, into another cell. A request that was cut off is finished when it is
    repeated."""
    if to not in engine.world.db.cells() or to == CELL0:
        await find_host(engine, name)
        raise Refused("not_found", f"cell {to[:80]}: not found, or not for hosts; `kilonova cell list` shows them")
    if await cell_of_host(engine, name) == to and await _finish_move(engine, name, to):
        return
    journal, row = await find_host(engine, name)
    if journal.name != to:
        await forget_host(engine, journal.name, name, row["provider_id"], next_cell=to)


async def _finish_move(engine: Engine, name: str, to: str) -> bool:
    """Remove the host's record from cells that it is not mapped to; return whether there was one."""
    db = engine.world.db

    async def find(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.hosts, name=name)

    async def check(tx: Tx) -> None:
        await refuse_unless_empty(tx, name, is_alive=True)

    moved = await db.cell(to).read(find)
    is_left = False
    for journal in (db.cell(other) for other in db.cells() if other not in (to, CELL0)):
        row = await journal.read(find)
        if row is None:
            continue
        is_left = True
        await drop_record(journal, name, engine.write, check)
        if moved is None or moved["provider_id"] != row["provider_id"]:
            await remove_provider(db.placement, row["provider_id"])
    return is_left


async def refuse_unless_empty(tx: Tx, name: str, *, is_alive: bool = False) -> None:
    for statement, sentence in REASONS_OF_LIVING if is_alive else REASONS:
        row = await tx.one(statement, host=name)
        if row is not None and row["n"]:
            raise Refused("host_in_use", sentence)


async def refuse_unless_idle(tx: Tx, name: str) -> None:
    """Raise `Refused` while an operation is at work on the host, or on a server that has a copy there."""
    for statement in (_BUSY, _STEPS):
        row = await tx.one(statement, host=name)
        if row is not None and row["n"]:
            raise Refused("host_in_use", f"host {name}: {row['n']} operations are at work there; wait for them")


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
