"""A conductor's lease: renewed while it lives, judged by the database's clock. After it expires, its work is ready
again under the same ordinal: the first to finish wins, the other's writes are refused (law 9)."""

from __future__ import annotations

from sqlalchemy import Float, bindparam, delete, or_, select, update

from kilonova.engine.core import Engine
from kilonova.measures import LEASES
from kilonova.schema.tables.control import workers
from kilonova.schema.tables.journal import STEP_IS_OPEN, steps
from kilonova.store import rows
from kilonova.store.marks import note_upkeep
from kilonova.store.statements import Sql, database_time, in_list
from kilonova.world import Store, Tx

# Longer than a lease can be: the database's clock was set back, which must not extend a lease (law 16).
_FORGET = Sql(
    delete(workers).where(
        or_(workers.c.lease_until <= bindparam("before"), workers.c.lease_until > bindparam("latest"))
    )
)
_LIVE = Sql(
    select(workers.c.id).where(workers.c.lease_until > bindparam("now"), workers.c.lease_until <= bindparam("latest"))
)
_FORGET_ALL = Sql(delete(workers).where(workers.c.id != bindparam("me")))
LISTED_AFTER_DEATH = 86400.0  # seconds that a worker whose lease ran out is still listed, as down
AT_MOST = 2  # leases ahead of now: other conductors may be configured with a longer one
_HOLDERS = Sql(select(steps.c.worker).where(STEP_IS_OPEN, steps.c.host == "", steps.c.state == "taken").distinct())
_FREE = Sql(
    update(steps)
    .where(STEP_IS_OPEN, steps.c.host == "", steps.c.state == "taken", in_list(steps.c.worker, "gone"))
    .values(state="ready", worker=None)
)
_HAND_BACK = Sql(
    update(steps)
    .where(STEP_IS_OPEN, steps.c.host == "", steps.c.state == "taken", steps.c.worker == bindparam("me"))
    .values(state="ready", worker=None)
    .returning(steps.c.operation_id)
)
_MINE = Sql(
    select(steps.c.operation_id, steps.c.ordinal).where(
        STEP_IS_OPEN,
        steps.c.host == "",
        steps.c.state == "taken",
        steps.c.worker == bindparam("me"),
        or_(
            steps.c.taken_at <= database_time() - bindparam("lease", type_=Float(53)),
            steps.c.taken_at > database_time(),
        ),
    )
)


async def renew(engine: Engine, seconds: float) -> set[str]:
    """Renew this worker's lease for that long; return all workers whose lease is valid."""

    async def body(tx: Tx) -> set[str]:
        now = await tx.now()
        until = {"lease_until": now + seconds}
        if not await rows.change(tx, workers, until, id=engine.worker):
            row = {"id": engine.worker, "kind": "conductor", "started_at": now, **until}
            await rows.put_row(tx, workers, row)
        latest = now + AT_MOST * seconds
        await tx.run(_FORGET, before=now - LISTED_AFTER_DEATH, latest=latest)
        return {row["id"] for row in await tx.all(_LIVE, now=now, latest=latest)}

    living = await engine.world.db.control.write(body)
    note_upkeep(engine.world.db.control)
    return living


async def forget_others(engine: Engine) -> None:
    """Remove all other leases, at the start of a process that owns the data directory: no other can be alive."""

    async def body(tx: Tx) -> None:
        await tx.run(_FORGET_ALL, me=engine.worker)

    await engine.world.db.control.write(body)


async def give_back(engine: Engine, journal: Store, driving: set[str]) -> int:
    """Make the steps ready again that this worker has taken but does not do, because it failed in between (a lost
    database, say). Steps taken within the last lease are left: they may just be about to begin."""

    async def find(tx: Tx) -> list[tuple[str, int]]:
        mine = await tx.all(_MINE, me=engine.worker, lease=engine.settings.conductor.lease_seconds)
        return [(row["operation_id"], row["ordinal"]) for row in mine if row["operation_id"] not in driving]

    lost = await journal.read(find)
    if not lost:
        return 0

    async def body(tx: Tx) -> int:
        count = 0
        for operation_id, ordinal in lost:
            held = {"operation_id": operation_id, "ordinal": ordinal, "worker": engine.worker, "open": 1}
            count += await rows.change(tx, steps, {"state": "ready", "worker": None}, **held)
        return count

    return await journal.write(body)


async def hand_back(engine: Engine, journal: Store) -> list[str]:
    """Make all steps of this worker ready again, since it stops; return their operations."""

    async def body(tx: Tx) -> list[str]:
        return [row["operation_id"] for row in await tx.all(_HAND_BACK, me=engine.worker)]

    return await journal.write(body)


async def leave(engine: Engine) -> None:
    """End the lease of this worker, which has stopped: any worker may take its steps."""

    async def body(tx: Tx) -> None:
        await rows.remove(tx, workers, id=engine.worker)

    await engine.world.db.control.write(body)


async def take_over(journal: Store, living: set[str]) -> int:
    """Make steps ready again whose workers are gone."""

    async def find(tx: Tx) -> list[str]:
        return [row["worker"] for row in await tx.all(_HOLDERS) if row["worker"] not in living]

    gone = await journal.read(find)
    if not gone:
        return 0

    async def body(tx: Tx) -> int:
        return await tx.run(_FREE, gone=gone)

    freed = await journal.write(body)
    LEASES.inc(freed)
    return freed
