"""Handing on what a transaction has made the next step, when it was not this worker's drive that made it."""

from __future__ import annotations

from kilonova.domain.errors import KilonovaError
from kilonova.domain.messages import StepOrder
from kilonova.engine import journal as log
from kilonova.engine.children import tell_parent
from kilonova.engine.conclude import Next
from kilonova.engine.connections import with_devices
from kilonova.engine.core import Engine, load_server
from kilonova.world import Store, Tx


async def pass_on(engine: Engine, journal: Store, following: Next) -> None:
    """Somebody else drives the next step: hand a CONTROL step that was taken here to this worker's loop."""
    if following.go is not None and following.go.target.host:
        await engine.wake(journal.name, following.op.id, following.go.target.host)
    elif following.go is not None and engine.on_mine is not None:
        await engine.on_mine(journal, following)
    elif following.go is not None:
        await engine.wake(journal.name, following.op.id)
    elif following.ended is not None and following.op.parent_id:
        await tell_parent(engine, journal, following.op.parent_id)


async def answer_with(engine: Engine, journal: Store, following: Next, *, filters: bool) -> StepOrder | None:
    """The order that goes with the answer to the host that reported the step before; any other step is passed on.
    `filters`: the host filters the traffic of ports."""
    order, server = following.order, following.server
    if order is not None and following.go is not None:
        has_ports = server is not None and server.has_ports
        try:
            return await with_devices(
                engine.world, order, following.go.target.host, has_ports=has_ports, filters=filters
            )
        except KilonovaError:  # the step is the host's: it is told when it asks
            pass
    await pass_on(engine, journal, following)
    return None


async def find_begun(engine: Engine, tx: Tx, journal: Store, operation_id: str) -> Next | None:
    """Return the position of an operation that this worker began in a transaction whose COMMIT was unknown (law 12);
    None if another worker has its step, or none."""
    op = await log.load(tx, operation_id)
    row = await log.fetch_step(tx, operation_id, op.ordinal) if op is not None and op.is_live else None
    if op is None or row is None or row["heir_of"] or not row["open"]:
        return None
    go = log.go_from(row)
    if not go.target.host and row["worker"] != engine.worker:
        return None
    return Next(op, engine.operation(op.kind).step(go.step), go, await load_server(tx, journal, op))
