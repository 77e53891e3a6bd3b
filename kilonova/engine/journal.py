"""Read and write the journal: operations and their steps. Their times are the database's own (law 16)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import msgspec
from sqlalchemy import bindparam, or_, select

from kilonova.domain.cause import Cause
from kilonova.domain.details import SEALED
from kilonova.domain.errors import Superseded
from kilonova.domain.json import Json, json_object
from kilonova.domain.operation import LIVE_STATES, may_follow
from kilonova.domain.server import to_json
from kilonova.engine.course import Course, Go
from kilonova.engine.model import AnyStep, F, Operation, P, Target
from kilonova.measures import operations_of
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Tx

logger = logging.getLogger(__name__)
_STANDING = Sql(
    select(*operations.c["ordinal", "turn", "state", "committed", "live"])
    .where(operations.c.id == bindparam("id"))
    .with_for_update()
)

LONGEST_PAUSE = 60.0  # seconds between two tries of a step
# A step may be taken. Further ahead than a pause can be: the database's clock was set back meanwhile (law 16).
DUE = or_(steps.c.not_before <= database_time(), steps.c.not_before > database_time() + LONGEST_PAUSE)


class Op(msgspec.Struct, kw_only=True):
    """An operation as journaled."""

    id: str
    kind: str
    version: int
    server_id: str | None
    turn: int
    state: str
    ordinal: int
    committed: bool
    course: Course
    cause: Cause
    request_id: str
    parent_id: str | None = None
    destination: str | None = None
    waiting_for: str | None = None
    superseded_by: str | None = None
    created_at: float = 0.0
    stored_params: str = ""
    stored_facts: str = ""
    known_params: Any = None  # decoded
    known_facts: Any = None

    def params(self, operation: Operation[F, P]) -> P:
        """Return the parameters, decoded once. `operation`: the one of this kind."""
        if self.known_params is None:
            self.known_params = msgspec.json.decode(self.stored_params, type=operation.params_type)
        params: P = self.known_params
        return params

    def facts(self, operation: Operation[F, P]) -> F:
        """Return the facts, decoded once. Changes in them are stored with the operation."""
        if self.known_facts is None:
            self.known_facts = msgspec.json.decode(self.stored_facts, type=operation.facts_type)
        facts: F = self.known_facts
        return facts

    @property
    def params_document(self) -> str:
        return self.stored_params or to_json(self.known_params)

    @property
    def facts_document(self) -> str:
        return self.stored_facts if self.known_facts is None else to_json(self.known_facts)

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES


def op_from(row: Row) -> Op:
    return Op(
        id=row["id"],
        kind=row["kind"],
        version=row["version"],
        server_id=row["server_id"],
        turn=row["turn"],
        state=row["state"],
        ordinal=row["ordinal"],
        committed=bool(row["committed"]),
        course=msgspec.json.decode(row["course"], type=Course),
        stored_params=row["params"],
        stored_facts=row["facts"],
        cause=msgspec.json.decode(row["cause"], type=Cause),
        request_id=row["request_id"],
        parent_id=row["parent_id"],
        destination=row["destination"],
        waiting_for=row["waiting_for"],
        superseded_by=row["superseded_by"],
        created_at=row["created_at"],
    )


async def load(tx: Tx, operation_id: str, *, lock: bool = False) -> Op | None:
    row = await rows.fetch(tx, operations, lock=lock, id=operation_id)
    return None if row is None else op_from(row)


async def is_unchanged(tx: Tx, op: Op) -> bool:
    """Lock the row as `load` does and return True if it still equals `op`, the copy in its last writer's memory.

    Reading and decoding the whole row would cost five times as much, and a create finishes nine steps.
    """
    row = await tx.one(_STANDING, id=op.id)
    if row is None or not row["live"]:
        return False
    standing = (row["ordinal"], row["turn"], row["state"], row["committed"])
    return standing == (op.ordinal, op.turn, op.state, int(op.committed))


ENDED: ContextVar[list[Op] | None] = ContextVar("operations that this transaction ends", default=None)


def report_end(op: Op, now: float) -> None:
    problem, seconds = op.course.problem, max(0.0, now - op.created_at) if op.created_at else None
    if seconds is not None:
        operations_of(op.kind, op.state).observe(seconds)
    logger.info(
        "operation ended: operation=%s kind=%s state=%s seconds=%s server=%s request=%s user=%s through=%s error=%s",
        op.id,
        op.kind,
        op.state,
        None if seconds is None else round(seconds, 3),
        op.server_id,
        op.request_id,
        op.cause.user_id,
        op.cause.through,
        None if problem is None else f"{problem.step}: {problem.message}",
    )


async def insert(tx: Tx, op: Op) -> None:
    await rows.put(
        tx,
        operations,
        ("created_at", "updated_at"),
        id=op.id,
        kind=op.kind,
        version=op.version,
        server_id=op.server_id,
        turn=op.turn,
        state=op.state,
        ordinal=op.ordinal,
        course=to_json(op.course),
        committed=int(op.committed),
        params=op.params_document,
        facts=op.facts_document,
        cause=to_json(op.cause),
        request_id=op.request_id,
        project_id=op.cause.project_id,
        user_id=op.cause.user_id,
        parent_id=op.parent_id,
        destination=op.destination,
        waiting_for=op.waiting_for,
        error=None,
        superseded_by=None,
        live=1,
        ended_at=None,
    )


async def save(tx: Tx, op: Op, was: str, was_ordinal: int) -> None:
    """Compare-and-set on the operation row: take, finish, cancel and supersede all pass here (law 8)."""
    values = {
        "turn": op.turn,
        "ordinal": op.ordinal,
        "course": to_json(op.course),
        "facts": op.facts_document,
        "destination": op.destination,
        "error": None if op.course.problem is None else to_json(op.course.problem),
    }
    if not op.is_live:
        values |= {"live": 0, "superseded_by": op.superseded_by, **stripped(op)}
    await _compare_and_set(tx, op, was, was_ordinal, values)


def stripped(op: Op, *, is_last: bool = False) -> dict[str, str]:
    """Return the columns of an ended operation without user data and files: the server's own row has them (law 13)."""
    columns = {}
    params, facts = op.params_document, op.facts_document
    if _may_have_sealed(params):
        columns["params"] = to_json(without_sealed(json_object(params)))
    if _may_have_sealed(facts):
        # An heir may still have to restore the former state, unless it is the server's last operation.
        keeps = ("before",) if op.superseded_by and not is_last else ()
        document = json_object(facts)
        stripped_facts = {name: one if name in keeps else without_sealed(one) for name, one in document.items()}
        columns["facts"] = to_json(stripped_facts)
    return columns


def _may_have_sealed(document: str) -> bool:
    """Return whether the document may hold sealed data. Every operation passes here, and hardly any document has these
    names."""
    return any(f'"{name}"' in document for name in SEALED)


def without_sealed(value: Json) -> Any:
    if isinstance(value, dict):
        return {name: without_sealed(one) for name, one in value.items() if name not in SEALED}
    return [without_sealed(one) for one in value] if isinstance(value, list) else value


async def save_taken(tx: Tx, op: Op, was: str) -> None:
    """Save a step that begins: the operation's facts and its course have not changed."""
    await _compare_and_set(tx, op, was, op.ordinal, {})


async def _compare_and_set(tx: Tx, op: Op, was: str, was_ordinal: int, values: Mapping[str, object]) -> None:
    if was != op.state and not may_follow(was, op.state):
        raise RuntimeError(f"operation {op.id}: {was} may not become {op.state}")
    standing = {"state": op.state, "committed": int(op.committed), "waiting_for": op.waiting_for}
    stamped = ("updated_at",) if op.is_live else ("updated_at", "ended_at")
    if not await rows.change(tx, operations, {**standing, **values}, stamped, id=op.id, ordinal=was_ordinal, live=1):
        raise Superseded(f"operation {op.id} moved on from ordinal {was_ordinal}")
    if not op.is_live and (ended := ENDED.get()) is not None:
        ended.append(op)


async def add_step(tx: Tx, op: Op, step: AnyStep, go: Go, worker: str | None, result: object | None = None) -> None:
    """Insert a step; ordinals only grow (law 1). With a worker it is taken at once, with a result it is done."""
    is_done = result is not None
    stamped = ("created_at",) if worker is None else ("created_at", "taken_at")
    await rows.put(
        tx,
        steps,
        (*stamped, "ended_at") if is_done else stamped,
        operation_id=op.id,
        ordinal=op.ordinal,
        name=step.name,
        way=go.way,
        host=go.target.host,
        copy=go.target.copy,
        heir_of=go.owner or None,
        server_id=op.server_id,
        turn=op.turn,
        state="ready" if worker is None else "done" if is_done else "taken",
        attempt=go.attempt,
        worker=worker,
        not_before=await due_in(tx, go.delay),
        result=to_json(result) if is_done else None,
        error=None,
        open=0 if is_done else 1,
    )


async def due_in(tx: Tx, seconds: float) -> float:
    """Return the `not_before` of a step: 0 if it is due now, so that no clock is read (law 16)."""
    if not seconds:
        return 0.0
    return await tx.now() + min(seconds, LONGEST_PAUSE)


async def is_due(tx: Tx, row: Row) -> bool:
    """Return whether a step that was read is due, by the same rule as DUE."""
    if not row["not_before"]:
        return True
    ahead: float = row["not_before"] - await tx.now()
    return not 0.0 < ahead <= LONGEST_PAUSE


async def end_step(
    tx: Tx, operation_id: str, ordinal: int, state: str, result: object = None, error: object = None
) -> None:
    values = {
        "state": state,
        "open": 0,
        "result": None if result is None else to_json(result),
        "error": None if error is None else to_json(error),
    }
    await rows.change(tx, steps, values, ("ended_at",), operation_id=operation_id, ordinal=ordinal)


async def fetch_step(tx: Tx, operation_id: str, ordinal: int) -> Row | None:
    return await rows.fetch(tx, steps, operation_id=operation_id, ordinal=ordinal)


def go_from(row: Row) -> Go:
    """Convert a step row for the course."""
    return Go(
        step=row["name"],
        way=row["way"],
        target=Target(row["host"], row["copy"]),
        attempt=row["attempt"],
        owner=row["heir_of"] or "",
    )
