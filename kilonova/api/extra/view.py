"""Operations as the API shows them: the journals of a create as one, steps, decisions. Facts stay inside."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.answers import FindingAnswer, InterventionAnswer, OperationAnswer, ProblemAnswer, StepAnswer
from kilonova.domain.json import Json, JsonObject, as_object, decoded
from kilonova.engine.course import problem_from
from kilonova.store.operations import Journaled
from kilonova.world import Row

SHOWN_AS = {"place": "create", "build": "create", "delete_unplaced": "delete"}


class ShownFacts(msgspec.Struct):
    """The facts of an operation of any kind that its answers show."""

    destination: str | None = None
    account: JsonObject | None = None
    decision: JsonObject | None = None
    room: str | None = None


class ShownCause(msgspec.Struct):
    user_id: str | None = None
    through: str | None = None
    reason: str | None = ""


class ShownResult(msgspec.Struct):
    """The decisions in the result of a step: of one server, or of several by their ids."""

    decision: JsonObject | None = None
    decisions: dict[str, JsonObject] = {}


def facts_of(row: Row) -> ShownFacts:
    return decoded(row["facts"], ShownFacts)


def operation(journaled: Sequence[Journaled]) -> OperationAnswer:
    """Return an operation from all its rows, oldest first; the newest row has its state."""
    first, newest = journaled[0].row, journaled[-1].row
    cause, facts = decoded(first["cause"], ShownCause), facts_of(newest)
    return {
        "id": newest["id"],
        "operation": SHOWN_AS.get(first["kind"], first["kind"]),
        "server": newest["server_id"],
        "turn": newest["turn"],
        "state": newest["state"],
        "waiting_for": newest["waiting_for"],
        "error": problem(newest["error"]),
        "destination": facts.destination,
        "past_no_return": bool(newest["committed"]),
        "superseded_by": newest["superseded_by"],
        "parent": newest["parent_id"],
        "account": facts.account,
        "requested_by": cause.user_id,
        "through": cause.through,
        "reason": cause.reason,
        "request_id": newest["request_id"],
        "journals": [one.journal.name for one in journaled],
        "created_at": first["created_at"],
        "updated_at": newest["updated_at"],
        "ended_at": newest["ended_at"],
    }


def step(row: Row) -> StepAnswer:
    return {
        "ordinal": row["ordinal"],
        "name": row["name"],
        "way": row["way"],
        "on": row["host"] or "control",
        "copy": row["copy"] or None,
        "state": row["state"],
        "attempt": row["attempt"],
        "inherited_from": row["heir_of"],
        "error": problem(row["error"]),
        "created_at": row["created_at"],
        "taken_at": row["taken_at"],
        "ended_at": row["ended_at"],
    }


def action(row: Row, events: Sequence[Row]) -> JsonObject:
    fields = ("event", "host", "result", "details", "started_at", "finished_at")
    return {
        "action": row["action"],
        "message": row["message"],
        "started_at": row["started_at"],
        "events": [{name: event[name] for name in fields} for event in events],
    }


def problem(document: str | None) -> ProblemAnswer | None:
    """Return an error without its details: those are in the explanation."""
    error = problem_from(document)
    return None if error is None else {"code": error.code, "message": error.message, "step": error.step}


def decision(journaled: Sequence[Journaled], steps: Sequence[Row]) -> JsonObject | None:
    """Return the newest decision: of an operation that chose a host, that failed because there was none, or that waits
    for answers. `steps` are in their order."""
    waiting = _given(journaled[-1].row) if steps and steps[-1]["open"] else None
    chosen = (choice for choice in map(decided, reversed(steps)) if choice is not None)
    return waiting or next(chosen, None) or _given(journaled[0].row)


def _given(row: Row) -> JsonObject | None:
    """Return the decision among the facts: from `place_many`, or from a step that waits and has not ended."""
    return facts_of(row).decision


def decided(step: Row) -> JsonObject | None:
    """Return the decision of a step, also of one that found no host. Of several servers, it is the last one's: each has
    its own in the operation that continues with it."""
    result, error = decoded(step["result"], ShownResult), problem_from(step["error"])
    choice = result.decision or next(reversed(result.decisions.values()), None)
    if choice is None and error is not None:
        choice = as_object(as_object(error.details).get("decision")) or None
    return choice


def short(choice: JsonObject | None) -> JsonObject | None:
    """Return a decision without the verdict on each host."""
    return None if choice is None else {name: value for name, value in choice.items() if name != "verdicts"}


def intervention(row: Row) -> InterventionAnswer:
    return {
        "verb": row["verb"],
        "ordinal": row["ordinal"],
        "reason": row["reason"],
        "request_id": row["request_id"],
        "created_at": row["created_at"],
        "by": row["user_id"],
    }


def finding(row: Row) -> FindingAnswer:
    """`holds`: what placement held for it then."""
    return {
        "id": row["id"],
        "operation": row["operation_id"],
        "server": row["server_id"],
        "step": row["step"],
        "way": row["way"],
        "on": row["host"] or "control",
        "copy": row["copy"] or None,
        "holds": decoded(row["holds"], list[Json]),
        "error": problem(row["error"]),
        "abandoned_by": row["user_id"],
        "reason": row["reason"],
        "created_at": row["created_at"],
        "settled_by": row["settled_by"],
        "settled_reason": row["settled_reason"],
        "settled_at": row["settled_at"],
    }
