"""A dry run of create: the checks and the plan of the real one, for one server or several, with nothing stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.json import JsonObject, as_object
from kilonova.domain.network import WantedPort
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.engine.core import Engine
from kilonova.engine.course import Problem
from kilonova.engine.model import AnyOperation, Operation
from kilonova.engine.rehearse import REHEARSAL, Planned, PlannedStep, plan_only, planned_steps
from kilonova.engine.submit import fresh
from kilonova.operations.checks.held import held_in_placement
from kilonova.operations.create.accept import NewServers, all_together, ask_of, how_many, most_members
from kilonova.operations.create.place import FROM_CELL0
from kilonova.operations.facts import CreateFacts, HostChoice, ManyFacts
from kilonova.operations.steps.claim import by_name
from kilonova.services.compute.server_groups import check_room
from kilonova.world import Tx

Resources = dict[str, dict[str, int]]  # by the name of the provider


class PlannedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server and its planned host; without a host, it would be buried in cell0."""

    name: str
    resources: dict[str, int]  # the whole claim, on any host
    host: str | None = None
    cell: str | None = None
    alternates: list[str] = []
    claims: Resources = {}


class CreateRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dry run. `problem` is set if the plan finds that the create would fail."""

    operation: str
    servers: list[PlannedServer]
    ports: list[WantedPort]  # of each server: made on a network, or given to it
    volumes: list[WantedVolume]  # of each server: made for it, or reserved
    steps: list[PlannedStep]
    decision: JsonObject | None = None  # of the last one, if several servers were requested
    problem: Problem | None = None


async def rehearse_create(engine: Engine, wanted: NewServers, cause: Cause) -> CreateRehearsal:
    """Rehearse a create. Raise `Refused` exactly when the real request would be refused."""
    news = wanted.make(await _how_many(engine, wanted, cause))
    now = engine.world.clock.now()
    asks = [ask_of((f"{REHEARSAL}-{n}", REHEARSAL), new, cause, now, None) for n, new in enumerate(news, 1)]
    ask = asks[0] if len(asks) == 1 else all_together(REHEARSAL, asks)
    operation: Operation[CreateFacts | ManyFacts, ServerSpec] = engine.operation(ask.kind)
    op = fresh(engine, ask, REHEARSAL, turn=1)
    planned = await plan_only(engine, engine.world.db.control, operation, op, None)
    candidates = _candidates(planned.facts, [one.server_id for one in asks])
    return CreateRehearsal(
        operation="create",
        servers=[
            planned_server(new.name, new.flavor, candidate) for new, candidate in zip(news, candidates, strict=True)
        ],
        ports=news[0].networks,
        volumes=news[0].volumes,
        steps=_steps(engine, operation),
        decision=_decision(planned),
        problem=planned.problem,
    )


async def _how_many(engine: Engine, wanted: NewServers, cause: Cause) -> int:
    held = await held_in_placement(engine.world.db.placement, engine.settings.quota, cause.project_id, cause.user_id)

    async def body(tx: Tx) -> int:
        count = await how_many(engine, tx, cause, wanted, held, locks=False)
        group = wanted.make(1)[0].group
        if group is not None:
            await check_room(tx, group, count, cause.user_id, await most_members(engine, tx, cause))
        return count

    return await engine.world.db.control.read(body)


def _decision(planned: Planned[CreateFacts | ManyFacts]) -> JsonObject | None:
    """Return the decision, or that of the refusal; of several servers, the last one's."""
    if isinstance(planned.facts, ManyFacts) and planned.facts.decisions:
        return list(planned.facts.decisions.values())[-1]
    return decision_in(planned)


def decision_in(planned: Planned[Any]) -> JsonObject | None:
    details = planned.documents if planned.problem is None else as_object(planned.problem.details)
    return as_object(details["decision"]) if "decision" in details else None


def _candidates(facts: CreateFacts | ManyFacts, servers: list[str]) -> list[list[HostChoice]]:
    """Return the candidates of each server; `place` has them for its one, `place_many` by server."""
    if isinstance(facts, CreateFacts):
        return [facts.candidates]
    return [facts.choices.get(server, []) for server in servers]


def planned_server(name: str, flavor: Flavor, candidates: Sequence[HostChoice]) -> PlannedServer:
    if not candidates:
        return PlannedServer(name=name, resources=flavor.resources())
    best, *others = candidates
    claims = _claims(best, flavor)
    return PlannedServer(
        name=name,
        resources=_sum(claims),
        host=best.host,
        cell=best.cell,
        alternates=[one.host for one in others],
        claims=claims,
    )


def _claims(choice: HostChoice, flavor: Flavor) -> Resources:
    return by_name(choice) if choice.allocations else {choice.host: flavor.resources()}


def _sum(claims: Resources) -> dict[str, int]:
    total: dict[str, int] = {}
    for given in claims.values():
        for resource, amount in given.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _steps(engine: Engine, operation: AnyOperation) -> list[PlannedStep]:
    """Return the steps in all journals of the operation, without leaving cell0: a new server is not there."""
    kinds = dict.fromkeys((operation.name, "place", "build"))
    others = {step.name for step in engine.operation("place").steps if step.on is FROM_CELL0}
    return [step for kind in kinds for step in planned_steps(engine.operation(kind)) if step.name not in others]
