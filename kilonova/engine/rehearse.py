"""A dry run: the same checks and the same plan as the real thing, on the same code path, with nothing stored."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.errors import Failed, NotYet
from kilonova.domain.server import Server
from kilonova.engine import journal as log
from kilonova.engine.accept import Ask, admitted, gather, new_operation
from kilonova.engine.context import Subject
from kilonova.engine.core import Engine, context_for
from kilonova.engine.course import Problem
from kilonova.engine.journal import Op
from kilonova.engine.model import Facts, Operation, Target
from kilonova.world import Store, Tx

REHEARSAL = "rehearsal"  # in place of an operation's id


class PlannedStep(msgspec.Struct, frozen=True):
    name: str
    where: str
    undone_by: bool  # it has an undo
    no_return: bool


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dry run. `problem` is set if the plan finds that the operation would fail."""

    operation: str
    server: str
    steps: list[PlannedStep]
    facts: dict[str, Any]
    joins: str | None = None  # it is under way already: the real request would be answered with this operation
    supersedes: str | None = None
    problem: Problem | None = None
    outlook: dict[str, Any] = {}  # what happens to the disks, and what is claimed


async def rehearse(engine: Engine, journal: Store, ask: Ask) -> Rehearsal:
    """Raises `Refused` exactly when the real request would be refused."""

    operation = engine.operation(ask.kind)

    async def body(tx: Tx) -> tuple[Subject, Facts | None]:
        subject = await gather(engine, tx, ask, lock=False)
        joins = subject.live is not None and operation.joins(subject)
        return subject, None if joins else await admitted(tx, operation, subject)

    subject, facts = await journal.read(body)
    if facts is None:
        assert subject.live is not None
        live = log.op_from(subject.live)
        return _told(operation, ask, live.facts, joins=live.id)
    op = new_operation(operation, ask, subject, facts, REHEARSAL)
    found, problem = await plan_only(engine, journal, operation, op, subject.server)
    superseded = None if subject.live is None else subject.live["id"]
    outlook = operation.outlook(subject, {**facts, **found})
    return _told(operation, ask, {**facts, **found}, supersedes=superseded, problem=problem, outlook=outlook)


async def plan_only(
    engine: Engine, journal: Store, operation: Operation, op: Op, server: Server | None
) -> tuple[Facts, Problem | None]:
    """Return the facts that the first step finds if it is the plan, or the problem that it would fail with."""
    first = operation.steps[0]
    if not first.plan:
        return {}, None
    ctx = context_for(engine, journal, op, Target(""), server)
    ctx.rehearsing = True
    try:
        return await first.do(ctx) or {}, None
    except NotYet as wait:
        code = "not_known" if "decision" in wait.facts else "not_yet"
        text = f"it would wait for {wait.waiting_for}"
        return {}, Problem(code=code, message=text, step=first.name, details=wait.facts)
    except Failed as error:
        return {}, Problem(code=error.code, message=error.message, step=first.name, details=error.details)


def planned_steps(operation: Operation) -> list[PlannedStep]:
    return [PlannedStep(s.name, s.on.name, s.undo is not None, s.no_return) for s in operation.steps]


def _told(operation: Operation, ask: Ask, facts: Facts, **more: Any) -> Rehearsal:
    steps = planned_steps(operation)
    return Rehearsal(operation=operation.name, server=ask.server_id, steps=steps, facts=facts, **more)
