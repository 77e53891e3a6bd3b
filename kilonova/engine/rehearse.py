"""A dry run: the same checks and the same plan as the real thing, on the same code path, with nothing stored."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.errors import Failed, NotYet
from kilonova.engine import journal as log
from kilonova.engine.accept import Ask, checked, gather, new_operation
from kilonova.engine.context import Subject
from kilonova.engine.core import Engine, context_for
from kilonova.engine.course import Problem
from kilonova.engine.model import Operation, Target
from kilonova.world import Store, Tx


class PlannedStep(msgspec.Struct, frozen=True):
    name: str
    where: str
    undone_by: bool  # it has an undo
    no_return: bool


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen. `problem` is set when the plan finds that it cannot."""

    operation: str
    server: str
    steps: list[PlannedStep]
    facts: dict[str, Any]
    joins: str | None = None  # it is under way already: the real request would be answered with this operation
    supersedes: str | None = None
    problem: Problem | None = None


async def rehearse(engine: Engine, journal: Store, ask: Ask) -> Rehearsal:
    """Raises `Refused` exactly when the real request would be refused."""

    async def body(tx: Tx) -> Subject:
        return await gather(engine, tx, ask, lock=False)

    subject = await journal.read(body)
    operation = engine.operation(ask.kind)
    if subject.live is not None and operation.joins(subject):
        live = log.op_from(subject.live)
        return _told(operation, ask, live.facts, joins=live.id)
    facts = checked(operation, subject)
    problem = None
    first = operation.steps[0]
    if first.plan:
        op = new_operation(operation, ask, subject, facts, "rehearsal")
        ctx = context_for(engine, journal, op, Target(""), subject.server)
        try:
            facts = {**facts, **(await first.do(ctx) or {})}
        except NotYet as wait:
            problem = Problem(code="not_yet", message=wait.waiting_for, step=first.name)
        except Failed as error:
            problem = Problem(code=error.code, message=error.message, step=first.name, details=error.details)
    return _told(
        operation, ask, facts, supersedes=None if subject.live is None else subject.live["id"], problem=problem
    )


def _told(operation: Operation, ask: Ask, facts: dict[str, Any], **more: Any) -> Rehearsal:
    steps = [PlannedStep(s.name, s.on.name, s.undo is not None, s.no_return) for s in operation.steps]
    return Rehearsal(operation=operation.name, server=ask.server_id, steps=steps, facts=facts, **more)
