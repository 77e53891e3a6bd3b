"""A dry run: the same checks and the same plan as a real request, on the same code path, with nothing stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

import msgspec

from kilonova.domain.errors import Failed, NotYet
from kilonova.domain.json import JsonObject, json_object
from kilonova.domain.params import Params
from kilonova.domain.server import Server
from kilonova.engine import journal as log
from kilonova.engine.accept import Ask, admitted, gather, new_operation
from kilonova.engine.context import Context, Subject
from kilonova.engine.core import Engine, context_for
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts, copy_of, document_of
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyOperation, F, Operation, P, Target
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
    facts: JsonObject
    joins: str | None = None  # it is under way already: the real request would be answered with this operation
    supersedes: str | None = None
    problem: Problem | None = None
    outlook: JsonObject = {}  # the fate of the disks, and the claim


async def rehearse(engine: Engine, journal: Store, ask: Ask) -> Rehearsal:
    """Rehearse a request. Raise `Refused` exactly when the real request would be refused."""

    operation = engine.operation(ask.kind)

    async def body(tx: Tx) -> tuple[Subject[Params], OperationFacts | None]:
        subject = await gather(engine, tx, ask, operation, lock=False)
        return subject, None if operation.joins(subject) else await admitted(tx, operation, subject)

    subject, facts = await journal.read(body)
    if facts is None:
        assert subject.live is not None
        live = log.op_from(subject.live)
        return _rehearsal_of(operation, ask, json_object(live.facts_document), joins=live.id)
    op = new_operation(operation, ask, subject, facts, REHEARSAL)
    planned = await plan_only(engine, journal, operation, op, subject.server)
    superseded = None if subject.live is None else subject.live["id"]
    outlook = operation.outlook(subject, planned.facts)
    document = {**document_of(planned.facts), **planned.documents}
    return _rehearsal_of(operation, ask, document, supersedes=superseded, problem=planned.problem, outlook=outlook)


class Planned(msgspec.Struct, Generic[F], frozen=True):
    """The outcome of a step that plans: the facts with its findings, or the problem that it would fail with."""

    facts: F
    documents: Mapping[str, JsonObject] = {}
    problem: Problem | None = None


async def plan_only(
    engine: Engine, journal: Store, operation: Operation[F, P], op: Op, server: Server | None
) -> Planned[F]:
    """Do the first step if it is the plan."""
    first, facts = operation.steps[0], op.facts(operation)
    if not first.plan:
        return Planned(facts)
    ctx: Context[F, P] = context_for(engine, journal, op, Target(""), server)
    ctx.rehearsing, ctx.facts = True, copy_of(facts)
    try:
        await first.control_work("do")(ctx)
        return Planned(ctx.facts, ctx.documents)
    except NotYet as wait:
        decision = ctx.facts.decision
        code, details = ("not_yet", {}) if decision is None else ("not_known", {"decision": decision})
        text = f"it would wait for {wait.waiting_for}"
        return Planned(facts, problem=Problem(code=code, message=text, step=first.name, details=details))
    except Failed as error:
        problem = Problem(code=error.code, message=error.message, step=first.name, details=error.details)
        return Planned(facts, problem=problem)


def planned_steps(operation: AnyOperation) -> list[PlannedStep]:
    return [PlannedStep(s.name, s.on.name, s.undo is not None, s.no_return) for s in operation.steps]


def _rehearsal_of(operation: AnyOperation, ask: Ask, facts: JsonObject, **more: Any) -> Rehearsal:
    steps = planned_steps(operation)
    return Rehearsal(operation=operation.name, server=ask.server_id, steps=steps, facts=facts, **more)
