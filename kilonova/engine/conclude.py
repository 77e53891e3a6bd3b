"""Finish a step in one transaction: its result, every row it changes in that database, the next step.

The compare-and-set on the operation row (ordinal) makes a late or doubled finish harmless: it is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kilonova.domain.errors import Failed, Superseded
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepOrder, StepResult
from kilonova.domain.server import Server
from kilonova.engine import debts, records
from kilonova.engine import journal as log
from kilonova.engine.context import AnyContext
from kilonova.engine.core import Engine, context_for, has_servers, load_server
from kilonova.engine.course import End, Go, Problem, after_failure, after_success, turn_back
from kilonova.engine.ending import end_operation
from kilonova.engine.facts import changed, copy_of, learn
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyStep, Target
from kilonova.engine.notifications import Stood, Teller, standing_of
from kilonova.engine.orders import may_run, order_for
from kilonova.engine.stuck_messages import standing, stuck_sentence
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import raise_epoch
from kilonova.world import Store, Tx

NOTHING = StepResult()


@dataclass
class Outcome:
    """The outcome of a step: a result, or a problem, or waived without being done (its host was declared down)."""

    result: StepResult = NOTHING  # of a host's step
    changed_facts: dict[str, object] = field(default_factory=dict)  # by a CONTROL step: facts that it has changed
    documents: Mapping[str, JsonObject] = field(default_factory=dict)
    problem: Problem | None = None
    waived: str | None = None

    @property
    def stored(self) -> object:
        """Return the result as the step's row shows it."""
        if self.waived:
            return StepResult(waived=self.waived)
        return {**self.changed_facts, **self.documents} if self.changed_facts or self.documents else self.result


class Reporter(NamedTuple):
    """The host session that reported a step; the response may give it the next one."""

    host: str
    session: str


@dataclass
class Next:
    """The position of an operation after a commit."""

    op: Op
    step: AnyStep | None = None
    go: Go | None = None
    server: Server | None = None
    ended: str | None = None
    order: StepOrder | None = None  # for the host that reported the step before: it has the next one already

    @property
    def host(self) -> str:
        """The host of the next step; "" for CONTROL, or without a next step."""
        return self.go.target.host if self.go is not None else ""

    @property
    def is_mine(self) -> bool:
        """Return whether the next step is a CONTROL step that was taken in the same transaction."""
        return self.go is not None and not self.go.target.host and not self.go.delay


def problem_of(error: Failed, step: str) -> Problem:
    return Problem(
        code=error.code,
        message=error.message,
        step=step,
        elsewhere=error.elsewhere,
        final=error.final,
        details=error.details,
    )


async def conclude(
    engine: Engine,
    journal: Store,
    operation_id: str,
    ordinal: int,
    outcome: Outcome,
    *,
    ctx: AnyContext | None = None,
    done: Go | None = None,
    known: Op | None = None,
    session: str | None = None,
    guard: Callable[[Tx], Awaitable[bool]] | None = None,
) -> Next:
    """Finish a step. Raise `Superseded` if the operation has moved on without this worker.

    `guard` raises the same if the host has another session; it returns True if the host may get the next step.

    A conductor that did a CONTROL step itself gives `ctx`, `done` and the operation as it wrote it (`known`). That
    saves reading the operation, the step and the server again: the ordinal proves that the step is still the current
    one, and the turn guards the writes to the server.
    """
    calls = 0

    async def body(tx: Tx) -> Next:
        nonlocal calls
        calls += 1
        if calls == 1 and known is not None and await log.is_unchanged(tx, known):
            op: Op | None = known  # changed from here on: another call has to read it
        else:
            op = await log.load(tx, operation_id, lock=True)
        if calls > 1 and op is not None and op.ordinal != ordinal:
            return await _own_move(engine, tx, journal, op, ordinal)
        goes_on = await guard(tx) if guard is not None else False
        if op is None or not op.is_live or op.ordinal != ordinal:
            raise Superseded(f"operation {operation_id} has moved on from step {ordinal}")
        ended = done or await _open_step(tx, op, session)
        reporter = Reporter(ended.target.host, session) if goes_on and session else None
        return await _conclude(engine, tx, journal, op, ended, outcome, ctx, reporter)

    try:
        return await engine.write(journal, body)
    except Failed as error:
        # a row change of the finishing transaction refused: the step failed, nothing of it was stored
        failed = Outcome(problem=problem_of(error, ""))
        return await conclude(
            engine, journal, operation_id, ordinal, failed, ctx=ctx, done=done, session=session, guard=guard
        )


async def _own_move(engine: Engine, tx: Tx, journal: Store, op: Op, ordinal: int) -> Next:
    """Return our own move after an unknown COMMIT (law 12): if the operation moved on and the next step is ours, it was
    our commit."""
    row = await log.fetch_step(tx, op.id, op.ordinal)
    if not op.is_live:
        return Next(op, ended=op.state)
    if row is None or op.ordinal != await _reached(engine, tx, op, ordinal):
        raise Superseded(f"operation {op.id} has moved on from step {ordinal}")
    go = log.go_from(row)
    if not go.target.host and row["worker"] != engine.worker:
        raise Superseded(f"operation {op.id} is held by another worker")
    owner = await log.load(tx, go.owner) if go.owner else None
    step = engine.operation(owner.kind if owner else op.kind).step(go.step)
    return Next(op, step, go, await load_server(tx, journal, op))


async def _reached(engine: Engine, tx: Tx, op: Op, ordinal: int) -> int:
    """Return the ordinal after ours, and after the steps that were done at once in the same transaction."""
    reached = ordinal + 1
    while reached < op.ordinal:
        row = await log.fetch_step(tx, op.id, reached)
        if row is None or row["worker"] != engine.worker or not engine.operation(op.kind).step(row["name"]).at_once:
            break
        reached += 1
    return reached


async def _open_step(tx: Tx, op: Op, session: str | None) -> Go:
    row = await log.fetch_step(tx, op.id, op.ordinal)
    if row is None or not row["open"] or (session is not None and row["worker"] != session):
        raise Superseded(f"operation {op.id}: step {op.ordinal} is held by another worker")
    return log.go_from(row)


async def _conclude(
    engine: Engine,
    tx: Tx,
    journal: Store,
    op: Op,
    done: Go,
    outcome: Outcome,
    ctx: AnyContext | None,
    reporter: Reporter | None,
) -> Next:
    now = engine.world.clock.now()
    owner = await log.load(tx, done.owner) if done.owner else None
    step = engine.operation(owner.kind if owner else op.kind).step(done.step)
    if ctx is None:
        ctx = context_for(engine, journal, op, done.target, await load_server(tx, journal, op, lock=True))
        ctx.server_is_locked = outcome.problem is None and outcome.waived is None  # these write rows of the server's
    ctx = ctx.copied()  # since this body may run again
    ctx.facts = (owner or op).facts(engine.operation((owner or op).kind))
    await _end_step(tx, journal, op, step, done, outcome, now)
    attempt, ordinal = op.course.attempt, op.ordinal
    stood = standing_of(engine, op)
    if owner is None and outcome.problem is None:
        learn(ctx.facts, outcome.changed_facts)
        if "decision" in outcome.documents:
            ctx.facts.decision = None  # it stays in the step's row: it is long
    move = await _decide(engine, tx, op, step, done, outcome, ctx, now)
    if op.course.attempt != attempt and ctx.server is not None:
        await _next_turn(tx, op, ctx)
    if engine.worker and outcome.problem is None:
        move, ctx = await _do_at_once(engine, tx, op, move, ctx)
    return await advance(engine, tx, journal, op, move, ctx, now, reporter, ordinal, stood=stood)


async def _do_at_once(engine: Engine, tx: Tx, op: Op, move: Go | End, ctx: AnyContext) -> tuple[Go | End, AnyContext]:
    """Do the steps that need no separate commit and return the move after them. A worker repeats one that fails."""
    operation = engine.operation(op.kind)
    while isinstance(move, Go) and move.way == "do" and operation.step(move.step).at_once:
        step = operation.step(move.step)
        trial = ctx.copied()
        trial.ordinal, trial.target = op.ordinal + 1, move.target
        facts = op.facts(operation)
        trial.facts = copy_of(facts)
        try:
            await step.control_work("do")(trial)
        except Exception:  # it is done as any other step then, and fails as one
            break
        changes = changed(facts, trial.facts)
        ctx, op.ordinal = trial, trial.ordinal
        await log.add_step(tx, op, step, move, engine.worker, changes)
        learn(facts, changes)
        ctx.facts = facts
        move = after_success(operation, op.course, facts, "do", op.committed)
    return move, ctx


async def _next_turn(tx: Tx, op: Op, ctx: AnyContext) -> None:
    """Begin a new turn for another destination: its copy gets a number that no other copy ever had (law 4)."""
    op.turn += 1
    if not await rows.change(tx, cell.servers, {"turn": op.turn}, id=op.server_id, turn=op.turn - 1):
        raise Superseded(f"server {op.server_id} has left turn {op.turn - 1}")
    ctx.turn = op.turn


async def _end_step(tx: Tx, journal: Store, op: Op, step: AnyStep, done: Go, outcome: Outcome, now: float) -> None:
    state = "failed" if outcome.problem else "waived" if outcome.waived else "done"
    result = None if outcome.problem else outcome.stored
    await log.end_step(tx, op.id, op.ordinal, state, result, outcome.problem)
    if done.way == "do" and has_servers(journal):
        await records.events_finished(tx, op, step.events, outcome.problem, now)


async def _decide(
    engine: Engine, tx: Tx, op: Op, step: AnyStep, done: Go, outcome: Outcome, ctx: AnyContext, now: float
) -> Go | End:
    """Record what the step found or why it failed, and ask the course what comes next."""
    operation = engine.operation(op.kind)
    facts = op.facts(operation)
    if outcome.problem is not None:
        elsewhere = outcome.problem.elsewhere and step.tries_elsewhere
        problem = msgspec.structs.replace(outcome.problem, step=step.name, elsewhere=elsewhere)
        ctx.changes.clear()
        ctx.server_changes.clear()
        move = after_failure(
            operation,
            op.course,
            facts,
            done.way,
            problem,
            done=done,
            committed=op.committed,
            max_attempts=engine.settings.scheduler.max_attempts,
        )
        waits = isinstance(move, Go) and move.waits
        op.course.stuck = stuck_sentence(op, step, done, problem) if waits else ""
        return move
    record = step.record if done.way == "do" else step.record_undo
    if record is not None:
        record(ctx, StepResult(waived=outcome.waived) if outcome.waived else outcome.result)
    if outcome.waived:
        await leave_to_host(tx, op, step, done, now)
    return after_success(operation, op.course, facts, done.way, op.committed)


async def leave_to_host(tx: Tx, op: Op, step: AnyStep, done: Go, now: float) -> None:
    """Leave the copy to a host that cannot be asked: it removes the copy when it is back, or learns what may run
    there."""
    if (done.way == "do" or step.undo_debt) and op.server_id:
        await debts.owe_removal(tx, done.target.host, op.server_id, done.target.copy, op.id, now)
    else:  # it may have to start its copy again
        await raise_epoch(tx, done.target.host)


async def advance(
    engine: Engine,
    tx: Tx,
    journal: Store,
    op: Op,
    move: Go | End,
    ctx: AnyContext,
    now: float,
    reporter: Reporter | None = None,
    ordinal: int | None = None,
    *,
    stood: Stood | None = None,
) -> Next:
    """Store the next step, or the end. Take a step of CONTROL or of the `reporter` in the same transaction.

    `ordinal`: the stored one, if further steps were done since. `stood`: the former position, if notifications are
    sent.
    """
    host_before = ctx.server.host if ctx.server is not None else None
    following = await _advance(engine, tx, journal, op, move, ctx, now, reporter, ordinal)
    if stood is not None:
        teller = Teller(engine, tx, journal, op, host_before)
        await teller.moved(stood, move if isinstance(move, End) else None)
    return following


async def _advance(
    engine: Engine,
    tx: Tx,
    journal: Store,
    op: Op,
    move: Go | End,
    ctx: AnyContext,
    now: float,
    reporter: Reporter | None,
    ordinal: int | None,
) -> Next:
    was, ordinal = op.state, op.ordinal if ordinal is None else ordinal
    operation = engine.operation(op.kind)
    if isinstance(move, End):
        await end_operation(tx, journal, operation, op, move, ctx, now, was, ordinal)
        return Next(op, ended=move.state)
    owner = await log.load(tx, move.owner) if move.owner else None
    step = engine.operation(owner.kind if owner else op.kind).step(move.step)
    op.ordinal += 1
    op.state, op.waiting_for = standing(op, move.way)
    op.destination = ctx.destination or op.destination
    if step.task_state and move.way == "do":
        ctx.set_server(task_state=step.task_state)
    await ctx.apply(tx, now)
    following = Next(op, step, move, ctx.changed_server)
    if reporter is not None and ctx.wrote_rows:
        following.server = await load_server(tx, journal, op)  # the order has all written columns
    worker = _taker(engine, following, reporter)
    if worker and move.target.host:
        try:
            following.order = await order_for(engine, tx, journal, op, step, move, following.server)
        except Failed:  # its secrets cannot be read: the host hears of it when it asks
            worker = None
    if worker and step.no_return and move.way == "do":
        op.committed = True
    await log.save(tx, op, was, ordinal)
    await log.add_step(tx, op, step, move, worker)
    if move.way == "do" and has_servers(journal):
        await records.events_started(tx, op, step.events, move.target.host, now)
    return following


def _taker(engine: Engine, following: Next, reporter: Reporter | None) -> str | None:
    """Return the worker that takes the step in this transaction; None: the step is ready for any."""
    step, go = following.step, following.go
    assert step is not None and go is not None
    if following.is_mine:
        return engine.worker or None  # the API's engine drives nothing
    if reporter is None or reporter.host != go.target.host or go.delay:
        return None
    return reporter.session if may_run(following.server, step, go) else None


async def cancel(engine: Engine, tx: Tx, journal: Store, op: Op, problem: Problem) -> Next:
    """Turn back from the current step; the caller has locked the row and checked that the operation may."""
    now = engine.world.clock.now()
    await log.end_step(tx, op.id, op.ordinal, "dropped")
    if has_servers(journal):
        await records.interrupted(tx, op, records.CANCELLED, now)
    server = await load_server(tx, journal, op, lock=True)
    stood = standing_of(engine, op)
    operation = engine.operation(op.kind)
    move = turn_back(operation, op.course, op.facts(operation), problem, op.committed)
    ctx = context_for(engine, journal, op, Target(""), server)
    return await advance(engine, tx, journal, op, move, ctx, now, stood=stood)
