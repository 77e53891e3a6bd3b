"""An operator's intervention in an operation that waits: resume it now, or abandon its current entry (law 17).

`abandon` skips one undo, or one step past the point of no return, that was refused for good or often enough. It never
moves permission to run. Whatever the step left behind is a finding of the server until an operator settles it.
"""

from __future__ import annotations

import logging

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.messages import StepResult
from kilonova.domain.owned import shares_in
from kilonova.domain.server import to_json
from kilonova.engine import journal as log
from kilonova.engine import records
from kilonova.engine.conclude import Next, advance, leave_to_host
from kilonova.engine.core import Engine, context_for, has_servers, load_server
from kilonova.engine.course import ABANDONED, Go, Problem, after_abandon
from kilonova.engine.facts import OperationFacts
from kilonova.engine.findings import Intervention, NewFinding, put_finding, put_intervention
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyStep
from kilonova.engine.notifications import standing_of
from kilonova.engine.run import pass_on
from kilonova.placement.books import by_consumer, read_allocations
from kilonova.schema.tables.journal import steps
from kilonova.store import rows
from kilonova.store.hosts import judge_host
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)


async def resume(engine: Engine, journal: Store, operation_id: str, cause: Cause) -> None:
    """Try the step that waits now."""

    async def body(tx: Tx) -> str:
        op, row = await _open(tx, operation_id)
        if row["state"] != "ready":
            text = f"operation {operation_id}: {row['name']} is being done right now, by {row['worker']}"
            raise Refused("being_tried", text)
        await rows.change(tx, steps, {"not_before": 0.0}, operation_id=op.id, ordinal=op.ordinal, open=1)
        await put_intervention(tx, op, Intervention("resume", cause), engine.world.clock.now())
        return str(row["host"])

    host = await engine.write(journal, body)
    logger.warning("operation resumed: operation=%s user=%s", operation_id, cause.user_id)
    await engine.wake(journal.name, operation_id, host)


async def abandon(engine: Engine, journal: Store, operation_id: str, cause: Cause, reason: str) -> None:
    """Skip the entry that waits and go on with the rest. Raise `Refused` where that is not safe or not needed."""
    seen = await _look(engine, journal, operation_id)
    left = await _held(engine, seen)
    intervention = Intervention("abandon", cause, reason)
    finding_id = engine.world.ids.uuid()

    async def body(tx: Tx) -> Next:
        op = await log.load(tx, operation_id, lock=True)
        done = await rows.fetch(tx, steps, operation_id=operation_id, ordinal=seen.op.ordinal, state=ABANDONED)
        if op is not None and done is not None:
            return Next(op)  # our own COMMIT was unknown (law 12)
        op, row = await _open(tx, operation_id)
        if op.ordinal != seen.op.ordinal:
            raise Refused("being_tried", f"operation {operation_id}: modified concurrently; read it again and retry")
        return await _abandon(engine, tx, journal, op, row, intervention, NewFinding(finding_id, left))

    following = await engine.write(journal, body)
    logger.warning(
        "operation abandoned: operation=%s step=%s user=%s reason=%s",
        operation_id,
        seen.step.name,
        cause.user_id,
        reason,
    )
    await pass_on(engine, journal, following)


class _Seen(msgspec.Struct, frozen=True):
    op: Op
    step: AnyStep
    facts: OperationFacts  # of the operation that the step belongs to


async def _look(engine: Engine, journal: Store, operation_id: str) -> _Seen:
    """Refuse early, before placement is asked."""

    async def body(tx: Tx) -> _Seen:
        op, row = await _open(tx, operation_id, lock=False)
        step, go = await _step(engine, tx, op, row)
        await _check(engine, tx, op, row, step, go)
        owner = await log.load(tx, go.owner) if go.owner else None
        return _Seen(op, step, (owner or op).facts(engine.operation((owner or op).kind)))

    return await journal.read(body)


async def _open(tx: Tx, operation_id: str, *, lock: bool = True) -> tuple[Op, Row]:
    """Return the operation and its current step."""
    op = await log.load(tx, operation_id, lock=lock)
    if op is None:
        raise Refused("not_found", f"operation {operation_id}: not found")
    row = await log.fetch_step(tx, operation_id, op.ordinal)
    if not op.is_live or row is None or not row["open"]:
        raise Refused("ended", f"operation {operation_id}: it has ended ({op.state})")
    return op, row


async def _step(engine: Engine, tx: Tx, op: Op, row: Row) -> tuple[AnyStep, Go]:
    go = log.go_from(row)
    owner = await log.load(tx, go.owner) if go.owner else None
    return engine.operation(owner.kind if owner else op.kind).step(go.step), go


async def _check(engine: Engine, tx: Tx, op: Op, row: Row, step: AnyStep, go: Go) -> None:
    """Refuse unless the step failed for good or often enough and is not being tried now. Never abandon a copy that may
    run on a host that is not declared down."""
    host = await judge_host(tx, go.target.host, engine.settings.default.service_down_time) if go.target.host else None
    if not op.course.stuck:
        waits = f"it waits for {op.waiting_for}" if op.waiting_for else f"it is {op.state}"
        raise Refused(
            "not_stuck", f"operation {op.id}: nothing to abandon, since nothing was refused for good; {waits}"
        )
    if row["state"] == "taken" and (host is None or host.is_up):
        who = go.target.host or "a conductor"
        raise Refused(
            "being_tried", f"operation {op.id}: {who} has {step.name} at this moment; repeat the request in a minute"
        )
    if step.only_rows:
        raise Refused(
            "not_abandonable",
            f"operation {op.id}: {step.name} only writes to the databases and cannot be skipped; see the conductor's "
            f"log for the error, then: kilonova op resume {op.id}",
        )
    if step.ends_copy(go.way) and not (host is not None and host.declared):
        raise Refused(
            "may_run",
            f"operation {op.id}: {go.target.host} may still run copy {go.target.copy} of server {op.server_id}, so "
            f"{step.name} cannot be skipped; fence {go.target.host} or declare it down first: "
            f"openstack compute service set --down {go.target.host} nova-compute",
        )


async def _held(engine: Engine, seen: _Seen) -> str:
    """Return the allocations of the server and its migration as JSON if the step is about claims."""
    if not seen.step.claims:
        return "[]"
    consumers = {seen.op.server_id, *seen.facts.consumers_held()}

    async def body(tx: Tx) -> str:
        held = by_consumer(await read_allocations(tx, sorted(filter(None, consumers))))
        return to_json(shares_in(held))

    return await engine.world.db.placement.read(body)


async def _abandon(
    engine: Engine, tx: Tx, journal: Store, op: Op, row: Row, intervention: Intervention, left: NewFinding
) -> Next:
    now = engine.world.clock.now()
    step, go = await _step(engine, tx, op, row)
    await _check(engine, tx, op, row, step, go)
    owner = await log.load(tx, go.owner) if go.owner else None
    ctx = context_for(engine, journal, op, go.target, await load_server(tx, journal, op, lock=True))
    operation = engine.operation(op.kind)
    facts: OperationFacts = op.facts(operation)
    ctx.facts = owner.facts(engine.operation(owner.kind)) if owner else facts
    await put_intervention(tx, op, intervention, now)
    problem = _problem(op, step, intervention)
    await log.end_step(
        tx, op.id, op.ordinal, ABANDONED, {"by": intervention.cause.user_id, "reason": intervention.reason}
    )
    if go.way == "do" and has_servers(journal):
        await records.events_finished(tx, op, step.events, problem, now)
    if step.ends_copy(go.way):
        await leave_to_host(tx, op, step, go, now)
    else:
        kind = owner.kind if owner else op.kind
        await put_finding(tx, op, kind, go, intervention, left, now)
    record = step.record if go.way == "do" else step.record_undo
    if record is not None:
        record(ctx, StepResult(waived=problem.message))
    stood = standing_of(engine, op)
    move = after_abandon(operation, op.course, facts, go.way, problem, op.committed)
    return await advance(engine, tx, journal, op, move, ctx, now, stood=stood)


def _problem(op: Op, step: AnyStep, intervention: Intervention) -> Problem:
    """Return the problem of an abandoned step: the earlier reasons, then the operator's."""
    before = op.course.problem
    first = f"{before.step}: {before.message} " if before is not None and before.code != ABANDONED else ""
    again = f"{before.message} " if before is not None and before.code == ABANDONED else ""
    text = f"{first}{again}{step.name} was abandoned by {intervention.cause.user_id}: {intervention.reason}"
    return Problem(code=ABANDONED, message=text, step=step.name)
