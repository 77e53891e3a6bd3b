"""Running CONTROL steps: take one, do it, finish it together with taking the next, until a host's turn or the end."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import msgspec

from kilonova.domain.errors import (
    CommitFailed,
    CommitUnknown,
    Conflict,
    Failed,
    KilonovaError,
    NotYet,
    Refused,
    StoreError,
    Superseded,
    Unreachable,
)
from kilonova.domain.messages import StepOrder
from kilonova.domain.params import Params
from kilonova.engine import journal as log
from kilonova.engine.accept import Accepted, Ask, accept, begin_operation
from kilonova.engine.children import MOMENT, SOON, notify_parent, was_called
from kilonova.engine.conclude import Next, Outcome, conclude, problem_of
from kilonova.engine.connections import with_devices
from kilonova.engine.context import AnyContext
from kilonova.engine.core import TRIES, Engine, context_for, load_server
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts, changed, copy_of, learn
from kilonova.engine.model import ControlWork
from kilonova.engine.secrets import sealed
from kilonova.engine.take import take_control
from kilonova.schema.tables.journal import steps
from kilonova.store import rows
from kilonova.world import Store, Tx

logger = logging.getLogger(__name__)
LOOKED_AT_AGAIN = 5.0  # seconds


async def drive(engine: Engine, journal: Store, operation_id: str, *, early: int | None = None) -> Next | None:
    """Do all CONTROL steps that can be done now. An operation that fails raises nothing here."""
    return await follow(engine, journal, await take_control(engine, journal, operation_id, early=early))


async def follow(engine: Engine, journal: Store, following: Next | None) -> Next | None:
    """Go on from a step that this worker has taken; return the position after it."""
    while following is not None and following.is_mine:
        following = await _one(engine, journal, following)
    if following is not None and (following.ended is not None or following.host):
        await pass_on(engine, journal, following)
    return following


async def pass_on(engine: Engine, journal: Store, following: Next) -> None:
    """Hand the next step on: to its host, to this worker's loop if the worker has taken it, or to any conductor. The
    end of the operation wakes its parent."""
    op = following.op
    if following.ended is not None:
        if op.parent_id:
            await notify_parent(engine, journal, op.parent_id)
    elif following.is_mine and engine.on_mine is not None:
        await engine.on_mine(journal, following)
    else:
        await engine.wake(journal.name, op.id, following.host)


async def answer_with(engine: Engine, journal: Store, following: Next, *, filters: bool) -> StepOrder | None:
    """Return the order that goes with the answer to the host that reported the step before; hand any other step on.
    `filters`: the host filters the traffic of ports."""
    order, server = following.order, following.server
    if order is not None and following.go is not None:
        has_ports = server is not None and server.has_ports
        try:
            return await with_devices(
                engine.world, order, following.go.target.host, has_ports=has_ports, filters=filters
            )
        except KilonovaError:  # the step is the host's: it gets the error when it asks
            pass
    await pass_on(engine, journal, following)
    return None


async def find_begun(engine: Engine, tx: Tx, journal: Store, operation_id: str) -> Next | None:
    """Return the position of an operation that this worker began in a transaction whose COMMIT was unknown (law 12);
    None if another worker has its step, or none."""
    op = await log.load(tx, operation_id)
    if op is None or not op.is_live:
        return None
    row = await log.fetch_step(tx, operation_id, op.ordinal)
    if row is None or row["heir_of"] or not row["open"]:
        return None
    go = log.go_from(row)
    if not go.target.host and row["worker"] != engine.worker:
        return None
    return Next(op, engine.operation(op.kind).step(go.step), go, await load_server(tx, journal, op))


async def _one(engine: Engine, journal: Store, current: Next) -> Next | None:
    op, go = current.op, current.go
    assert go is not None
    ordinal = op.ordinal
    ctx = await prepare(engine, journal, current)
    try:
        outcome = await perform(current, ctx)
        return await conclude(engine, journal, op.id, ordinal, outcome, ctx=ctx, done=go, known=op)
    except NotYet as wait:
        keeps = wait.keeps_facts and not go.owner
        changes = changed(op.facts(engine.operation(op.kind)), ctx.facts) if keeps else {}
        await postpone(engine, journal, op.id, ordinal, wait, changes)
        return None
    except Superseded as why:
        logger.debug("operation %s: %s", op.id, why)
        return None


async def prepare(engine: Engine, journal: Store, current: Next) -> AnyContext:
    """Make the context of a step: an inherited undo sees the facts of the operation that it undoes."""
    op, go, step = current.op, current.go, current.step
    assert go is not None
    assert step is not None
    ctx = context_for(engine, journal, op, go.target, current.server)
    ctx.begin, ctx.wake = partial(begin_operation, engine), engine.wake
    ctx.find_begun, ctx.pass_on = partial(find_begun, engine), partial(pass_on, engine)
    ctx.ask = partial(_ask_child, engine, ctx)

    async def body(tx: Tx) -> None:
        owner = await log.load(tx, go.owner) if go.owner else None
        if owner is not None:
            ctx.facts = owner.facts(engine.operation(owner.kind))
        if step.with_secrets:
            ctx.sealed = await sealed(tx, op.id)

    if go.owner or step.with_secrets:
        await journal.read(body, few=True)
    return ctx


async def _ask_child(
    engine: Engine, ctx: AnyContext, journal: Store, kind: str, server: str, operation_id: str, params: Params
) -> Accepted:
    cause = msgspec.structs.replace(ctx.cause, through=f"operation {ctx.operation_id}")
    ask = Ask(
        kind=kind,
        server_id=server,
        cause=cause,
        params=params,
        operation_id=operation_id,
        parent_id=ctx.operation_id,
    )
    return await accept(engine, journal, ask)


async def perform(current: Next, ctx: AnyContext) -> Outcome:
    """Do or undo the step. An unexpected error counts as a failed step: it is logged in full and undone like any
    other."""
    step, go = current.step, current.go
    assert step is not None
    assert go is not None
    before, ctx.facts = ctx.facts, copy_of(ctx.facts)  # what it writes there is stored only when it ends
    try:
        async with asyncio.timeout(step.deadline):
            await _until_known(step.control_work(go.way), ctx, before)
        return Outcome(changed_facts=changed(before, ctx.facts), documents=ctx.documents)
    except Failed as error:
        return Outcome(problem=problem_of(error, step.name))
    except TimeoutError:
        text = f"{step.name} did not end within {step.deadline:.0f} s"
        return Outcome(problem=Problem(code="deadline", message=text, step=step.name))
    except (Superseded, NotYet):
        raise
    except (Refused, Conflict, StoreError) as error:
        return Outcome(problem=Problem(code="refused", message=str(error), step=step.name))
    except Exception as error:
        logger.exception("operation %s: %s failed unexpectedly", ctx.operation_id, step.name)
        text = f"{type(error).__name__}: {error}"
        return Outcome(problem=Problem(code="unexpected", message=text, step=step.name, final=True))


async def _until_known(work: ControlWork[Any, Any], ctx: AnyContext, before: OperationFacts) -> None:
    """Repeat the work under the same ordinal after a failed or unknown COMMIT in another database; the fence returns
    what was recorded. If a database is unreachable, the operation waits for it without occupying a worker."""
    tries = 0
    while True:
        try:
            await work(ctx)
            return
        except (CommitUnknown, CommitFailed) as error:
            tries += 1
            ctx.facts = copy_of(before)
            if isinstance(error, Unreachable) and tries >= TRIES:
                raise NotYet(f"a database to answer: {error}", LOOKED_AT_AGAIN, for_answer=True) from error
            ctx.changes.clear()
            ctx.server_changes.clear()
            await ctx.world.clock.sleep(0.1)


async def postpone(
    engine: Engine, journal: Store, operation_id: str, ordinal: int, wait: NotYet, changes: dict[str, object]
) -> None:
    """Put the same step off; until then the operation says what it waits for. `changes`: facts to keep."""

    async def body(tx: Tx) -> bool:
        op = await log.load(tx, operation_id, lock=True)
        if op is None or not op.is_live or op.ordinal != ordinal:
            return False
        was = op.state
        op.state, op.waiting_for = "waiting", wait.waiting_for
        learn(op.facts(engine.operation(op.kind)), changes)
        await log.save(tx, op, was, ordinal)
        step = await rows.fetch(tx, steps, operation_id=operation_id, ordinal=ordinal)
        is_called = step is not None and was_called(step)
        ready = {"state": "ready", "worker": None}
        due = {} if is_called else {"not_before": await log.due_in(tx, wait.seconds)}
        await rows.change(tx, steps, {**ready, **due}, operation_id=operation_id, ordinal=ordinal, open=1)
        return is_called

    seconds = SOON if await engine.write(journal, body) else wait.seconds
    if seconds < engine.settings.conductor.poll_seconds:  # else the next look for work finds it as early
        engine.wake_in(seconds + MOMENT, journal.name, operation_id)
    if wait.for_answer:
        engine.waiting.add(journal, operation_id, ordinal)
