"""Take steps: a compare-and-set on the operation row, for a conductor's own steps and for hosts that pull theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import bindparam, or_, select

from kilonova.domain.errors import Superseded
from kilonova.domain.messages import Beat, StepOrder
from kilonova.engine import journal as log
from kilonova.engine.conclude import Next
from kilonova.engine.connections import with_devices
from kilonova.engine.core import Engine, load_server
from kilonova.engine.course import Go
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyStep
from kilonova.engine.orders import may_run, order_for
from kilonova.engine.stuck_messages import standing
from kilonova.schema.tables.journal import STEP_IS_OPEN, steps
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

Guard = Callable[[Tx], Awaitable[None]]

_READY_HERE = Sql(
    select(steps.c.operation_id)
    .where(STEP_IS_OPEN, steps.c.host == "", steps.c.state == "ready", log.DUE)
    .order_by(steps.c.created_at, steps.c.operation_id)
    .limit(256)
)
_FOR_HOST = Sql(
    select(steps.c.operation_id, steps.c.ordinal)
    .where(
        STEP_IS_OPEN,
        steps.c.host == bindparam("host"),
        or_(steps.c.state == "taken", log.DUE),
    )
    .order_by(steps.c.created_at, steps.c.operation_id)
)
_HOSTS_WITH_WORK = Sql(select(steps.c.host).where(STEP_IS_OPEN, steps.c.host != "").distinct())


async def ready_operations(journal: Store) -> list[str]:
    """Return operations whose next CONTROL step is due."""

    async def body(tx: Tx) -> list[str]:
        return [row["operation_id"] for row in await tx.all(_READY_HERE)]

    return await journal.read(body)


async def hosts_with_work(journal: Store) -> set[str]:
    async def body(tx: Tx) -> set[str]:
        return {row["host"] for row in await tx.all(_HOSTS_WITH_WORK)}

    return await journal.read(body)


async def take_control(engine: Engine, journal: Store, operation_id: str, *, early: int | None = None) -> Next | None:
    """Take the next CONTROL step for this conductor; None when there is none or another one has it. The step with the
    ordinal `early` is taken before its time: what it waits for may be there."""
    calls = 0

    async def body(tx: Tx) -> Next | None:
        nonlocal calls
        calls += 1
        op = await log.load(tx, operation_id, lock=True)
        if op is None or not op.is_live:
            return None
        row = await log.fetch_step(tx, operation_id, op.ordinal)
        if row is None or row["host"] or not row["open"]:
            return None
        # a second call: the first COMMIT was unknown, and no other task of this worker drives this operation
        mine_already = calls > 1 and row["state"] == "taken" and row["worker"] == engine.worker
        if row["state"] != "ready" and not mine_already:
            return None
        if op.ordinal != early and not await log.is_due(tx, row):
            return None
        go, step = await _step(engine, tx, op, row)
        await _mark_taken(tx, op, step, row, engine.worker)
        return Next(op, step, go, await load_server(tx, journal, op))

    return await engine.write(journal, body)


async def open_for_host(tx: Tx, beat: Beat) -> list[tuple[str, int]]:
    """Return the steps that this host should be doing and is not: new ones, and those whose order or agent was lost."""
    open_steps = await tx.all(_FOR_HOST, host=beat.host)
    wanted = [(row["operation_id"], row["ordinal"]) for row in open_steps]
    return [(operation, ordinal) for operation, ordinal in wanted if f"{operation}/{ordinal}" not in beat.has]


async def take_for_host(
    engine: Engine, journal: Store, operation_id: str, ordinal: int, beat: Beat, guard: Guard
) -> StepOrder | None:
    """Take a step for a host. `guard` raises `Superseded` if another agent has registered for the host since."""
    host, session = beat.host, beat.session

    async def body(tx: Tx) -> tuple[StepOrder, bool] | None:
        await guard(tx)
        op = await log.load(tx, operation_id, lock=True)
        if op is None or not op.is_live or op.ordinal != ordinal:
            return None
        row = await log.fetch_step(tx, operation_id, ordinal)
        if row is None or not row["open"] or row["host"] != host:
            return None
        go, step = await _step(engine, tx, op, row)
        server = await load_server(tx, journal, op)
        if not may_run(server, step, go):
            raise RuntimeError(f"host {host} has no permission to run copy {go.target.copy} of {op.server_id}")
        await _mark_taken(tx, op, step, row, session)
        return await order_for(engine, tx, journal, op, step, go, server), server is not None and server.has_ports

    try:
        taken = await engine.write(journal, body)
    except Superseded:
        return None
    if taken is None:
        return None
    order, has_ports = taken
    return await with_devices(engine.world, order, host, has_ports=has_ports, filters=beat.filters)


async def _step(engine: Engine, tx: Tx, op: Op, row: Row) -> tuple[Go, AnyStep]:
    go = log.go_from(row)
    owner = await log.load(tx, go.owner) if go.owner else None
    return go, engine.operation(owner.kind if owner else op.kind).step(go.step)


async def _mark_taken(tx: Tx, op: Op, step: AnyStep, row: Row, worker: str) -> None:
    """Take the step by a compare-and-set on the operation row: cancel and supersede come before it or after it (law
    8)."""
    was = op.state
    op.state, op.waiting_for = standing(op, row["way"])
    op.committed = op.committed or (step.no_return and row["way"] == "do")
    await log.save_taken(tx, op, was)
    held = {"operation_id": op.id, "ordinal": op.ordinal, "open": 1}
    if not await rows.change(tx, steps, {"state": "taken", "worker": worker}, ("taken_at",), **held):
        raise Superseded(f"operation {op.id}: step {op.ordinal} has ended")
