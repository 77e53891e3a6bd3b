"""What comes next: a pure function of where an operation stands and how its step ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kilonova.domain.operation import BACK, FORWARD, REWIND
from kilonova.engine.model import FOREVER, Operation, Target

INHERIT, ENDING = "inherit", "ending"


class Begun(msgspec.Struct, frozen=True, array_like=True):
    """A step that was begun and not undone: one entry of the undo stack. `owner` is set when it was inherited."""

    step: str  # by name: lists of steps change between releases, names stay (law 14)
    host: str
    copy: int
    owner: str = ""
    kind: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step did not work."""

    code: str
    message: str
    step: str = ""
    elsewhere: bool = False
    final: bool = False
    details: Any = None


class Course(msgspec.Struct, kw_only=True):
    """Where an operation stands."""

    mode: str = FORWARD
    at: str = ""  # the step it is at
    attempt: int = 1  # destinations tried
    stack: list[Begun] = []
    targets: list[Target] = []  # of the current step, still to do
    problem: Problem | None = None


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """The next step row."""

    step: str
    way: str
    target: Target
    attempt: int = 1
    delay: float = 0.0
    owner: str = ""  # the operation whose step is being undone, when inherited
    kind: str = ""


class End(msgspec.Struct, frozen=True):
    state: str


def begin(operation: Operation, course: Course, facts: dict[str, Any]) -> Go | End:
    """The first step of an accepted operation."""
    if course.mode == INHERIT:
        return _undo_next(operation, course, facts, False)
    return _enter(operation, course, facts, 0, False)


def after_success(operation: Operation, course: Course, facts: dict[str, Any], way: str, committed: bool) -> Go | End:
    if way == "undo":
        course.stack.pop()
        return _undo_next(operation, course, facts, committed)
    step = operation.step(course.at)
    if step.no_return and step.undo is None:
        course.stack = []  # from here on only forward
    if course.targets:
        return _begin_target(operation, course)
    return _enter(operation, course, facts, operation.position_after(course.at), committed)


def after_failure(
    operation: Operation,
    course: Course,
    facts: dict[str, Any],
    way: str,
    problem: Problem,
    *,
    done: Go,
    committed: bool,
    max_attempts: int,
) -> Go | End:
    """Again, elsewhere, or back; an undo or an ending is tried until it works."""
    retries = FOREVER if way == "undo" or course.mode == ENDING else operation.step(done.step).retry
    if retries == FOREVER or (done.attempt <= retries and not problem.final):
        return msgspec.structs.replace(done, attempt=done.attempt + 1, delay=backoff(done.attempt))
    course.problem = _with_earlier(course.problem, problem)
    course.targets = []
    elsewhere = problem.elsewhere and operation.again_from is not None and course.attempt < max_attempts
    course.mode = REWIND if elsewhere else BACK
    return _undo_next(operation, course, facts, committed)


def _with_earlier(earlier: Problem | None, problem: Problem) -> Problem:
    """That nothing else fits says little without why the first destination did not do."""
    if earlier is None or problem.code != "no_valid_host":
        return problem
    return msgspec.structs.replace(
        problem, message=f"{problem.message} The destination before: {earlier.step}: {earlier.message}"
    )


def turn_back(
    operation: Operation, course: Course, facts: dict[str, Any], problem: Problem, committed: bool
) -> Go | End:
    """Cancelled: undo everything from here."""
    course.problem = problem
    course.targets = []
    course.mode = BACK
    return _undo_next(operation, course, facts, committed)


def backoff(attempt: int) -> float:
    return float(min(60.0, 0.5 * 2 ** min(attempt - 1, 10)))


def _enter(operation: Operation, course: Course, facts: dict[str, Any], position: int, committed: bool) -> Go | End:
    """Start the step at `position`, passing over those without a target."""
    limit = len(operation.course) if course.mode == ENDING else len(operation.steps)
    while position < limit:
        step = operation.course[position]
        targets = list(step.on.targets(facts))
        if targets:
            course.at, course.targets = step.name, targets
            return _begin_target(operation, course)
        position += 1
    return End("done") if course.mode == FORWARD else End(_ending_state(course, committed))


def _begin_target(operation: Operation, course: Course) -> Go:
    """Take the next target; from now on the step counts as begun (law 7)."""
    target = course.targets.pop(0)
    begun = Begun(course.at, target.host, target.copy)
    if operation.step(course.at).undo is not None and begun not in course.stack:
        course.stack.append(begun)
    return Go(step=course.at, way="do", target=target)


def _undo_next(operation: Operation, course: Course, facts: dict[str, Any], committed: bool) -> Go | End:
    if course.mode == REWIND and operation.again_from is not None:
        again = operation.position_of(operation.again_from)
        if not course.stack or operation.position_of(course.stack[-1].step) < again:
            course.mode, course.attempt = FORWARD, course.attempt + 1
            return _enter(operation, course, facts, again, committed)
    if course.stack:
        top = course.stack[-1]
        return Go(step=top.step, way="undo", target=Target(top.host, top.copy), owner=top.owner, kind=top.kind)
    if course.mode == INHERIT:
        course.mode = FORWARD
        return _enter(operation, course, facts, 0, committed)
    if operation.ending:
        course.mode = ENDING
        return _enter(operation, course, facts, len(operation.steps), committed)
    return End(_ending_state(course, committed))


def _ending_state(course: Course, committed: bool) -> str:
    if course.problem is not None and course.problem.code == "cancelled":
        return "cancelled"
    return "failed" if committed else "undone"


def inherit(stack: Sequence[Begun], operation_id: str, kind: str) -> list[Begun]:
    """A superseded operation's undo stack, in the hands of its heir; what it had inherited keeps its first owner."""
    return [b if b.owner else Begun(b.step, b.host, b.copy, operation_id, kind) for b in stack]
