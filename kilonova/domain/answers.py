"""The responses of our own REST about operations: the API writes these types, the command line reads them."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from kilonova.domain.json import Json, JsonObject


class ProblemAnswer(TypedDict):
    code: str
    message: str
    step: str


class StepAnswer(TypedDict):
    """Owners see no host and no error."""

    ordinal: int
    name: str
    way: str
    on: str | None
    copy: int | None
    state: str
    attempt: int
    inherited_from: str | None
    error: ProblemAnswer | None
    created_at: float
    taken_at: float | None
    ended_at: float | None


class InterventionAnswer(TypedDict):
    verb: str
    ordinal: int
    reason: str
    request_id: str
    created_at: float
    by: str


class FindingAnswer(TypedDict):
    id: str
    operation: str
    server: str | None
    step: str
    way: str
    on: str
    copy: int | None
    holds: Json
    error: ProblemAnswer | None
    abandoned_by: str
    reason: str
    created_at: float
    settled_by: str | None
    settled_reason: str | None
    settled_at: float | None


class ChildCounts(TypedDict):
    planned: int
    begun: int
    running: int
    done: int
    failed: int


class ByteCounts(TypedDict):
    planned: int
    done: int


class ProgressAnswer(TypedDict):
    children: ChildCounts
    bytes: ByteCounts
    seconds_estimated: float


class OperationAnswer(TypedDict):
    """An operation in a list."""

    id: str
    operation: str
    server: str | None
    turn: int | None
    state: str
    waiting_for: str | None
    error: ProblemAnswer | None
    destination: str | None
    past_no_return: bool
    superseded_by: str | None
    parent: str | None
    account: JsonObject | None  # of whole hosts: a sentence, and by kind each server and why
    requested_by: str | None
    through: str | None
    reason: str | None
    request_id: str | None
    journals: list[str] | None
    created_at: float
    updated_at: float
    ended_at: float | None
    progress: NotRequired[ProgressAnswer | None]


class WholeOperation(OperationAnswer):
    """An operation by its id."""

    decision: JsonObject | None
    steps: list[StepAnswer]
    actions: list[JsonObject]
    interventions: list[InterventionAnswer]
    findings: list[FindingAnswer]
