"""The next step: a pure function of an operation's position and of the outcome of its step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.json import Json
from kilonova.domain.operation import BACK, FORWARD, REWIND
from kilonova.engine.model import FOREVER, AnyOperation, Target

INHERIT, ENDING = "inherit", "ending"
TRIES = 10  # counted refusals; then it waits for an operator (law 17)
TRIED_EVERY = 60.0  # seconds, while it waits
ABANDONED = "abandoned"
UNANSWERED = ("deadline", "host_down")  # codes of problems without a refusal


class Begun(msgspec.Struct, frozen=True, array_like=True):
    """A step that was begun and not undone: one entry of the undo stack. `owner` is set when it was inherited."""

    step: str  # by name: lists of steps change between releases, names stay (law 14)
    host: str
    copy: int
    owner: str = ""
    kind: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a step failed."""

    code: str
    message: str
    step: str = ""
    elsewhere: bool = False
    final: bool = False
    details: Json = None

    @property
    def counts(self) -> bool:
        """Return whether the failure is an answer that refuses; silence proves nothing."""
        return self.code not in UNANSWERED


def problem_from(document: str | None) -> Problem | None:
    """Decode the stored reason of a step or an operation."""
    return None if document is None else msgspec.json.decode(document, type=Problem)


class Course(msgspec.Struct, kw_only=True):
    """The position of an operation."""

    mode: str = FORWARD
    at: str = ""  # the step it is at
    attempt: int = 1  # destinations tried
    stack: list[Begun] = []
    targets: list[Target] = []  # of the current step, still to do
    problem: Problem | None = None
    refusals: int = 0  # counted tries of an undo, or of a step that has no way back
    stuck: str = ""  # why that step waits for an operator, and the command to type


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """The next step row."""

    step: str
    way: str
    target: Target
    attempt: int = 1
    delay: float = 0.0
    owner: str = ""  # the operation whose step is being undone, when inherited
    kind: str = ""
    waits: bool = False  # for an operator; tried now and then all the same


class End(msgspec.Struct, frozen=True):
    state: str


def begin(operation: AnyOperation, course: Course, facts: object) -> Go | End:
    """Return the first step of an accepted operation."""
    if course.mode == INHERIT:
        return _undo_next(operation, course, facts, False)
    return _enter(operation, course, facts, 0, False)


def after_success(operation: AnyOperation, course: Course, facts: object, way: str, committed: bool) -> Go | End:
    course.refusals, course.stuck = 0, ""
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
    operation: AnyOperation,
    course: Course,
    facts: object,
    way: str,
    problem: Problem,
    *,
    done: Go,
    committed: bool,
    max_attempts: int,
) -> Go | End:
    """Decide after a failure: retry the step, try another host, or undo.

    An undo, an ending or a step that cannot be undone is repeated until it succeeds or an operator abandons it (law
    17).
    """
    retries = FOREVER if way == "undo" or course.mode == ENDING else operation.step(done.step).retry
    if retries == FOREVER:
        return _insist(course, problem, done)
    if done.attempt <= retries and not problem.final:
        return msgspec.structs.replace(done, attempt=done.attempt + 1, delay=backoff(done.attempt))
    course.problem = _with_earlier(course.problem, problem)
    course.targets = []
    elsewhere = problem.elsewhere and operation.again_from is not None and course.attempt < max_attempts
    course.mode = REWIND if elsewhere else BACK
    return _undo_next(operation, course, facts, committed)


def _insist(course: Course, problem: Problem, done: Go) -> Go:
    """Repeat the step; if it was refused for good or often enough, once a minute and visibly."""
    if problem.counts:
        course.refusals = max(course.refusals, TRIES) if problem.final else course.refusals + 1
    waits = course.refusals >= TRIES
    delay = TRIED_EVERY if waits else backoff(done.attempt)
    again: Go = msgspec.structs.replace(done, attempt=done.attempt + 1, delay=delay, waits=waits)
    return again


def after_abandon(
    operation: AnyOperation, course: Course, facts: object, way: str, problem: Problem, committed: bool
) -> Go | End:
    """Skip that entry and do the rest; the operation then ends as failed."""
    course.problem = problem
    if course.mode in (INHERIT, REWIND):
        course.mode = BACK
    return after_success(operation, course, facts, way, committed)


def _with_earlier(earlier: Problem | None, problem: Problem) -> Problem:
    """Return the problem with the earlier one in its text: "no other host fits" alone does not say why the first
    destination failed."""
    if earlier is not None and earlier.code == ABANDONED:
        text = f"{earlier.message} Then {problem.step} failed: {problem.message}"
        joined: Problem = msgspec.structs.replace(earlier, message=text)
        return joined
    if earlier is None or problem.code not in ("no_valid_host", "not_known"):
        return problem
    return msgspec.structs.replace(
        problem, message=f"{problem.message} The destination before: {earlier.step}: {earlier.message}"
    )


def turn_back(operation: AnyOperation, course: Course, facts: object, problem: Problem, committed: bool) -> Go | End:
    """Undo everything from here: the operation was cancelled."""
    course.problem = problem
    course.refusals, course.stuck = 0, ""
    course.targets = []
    course.mode = BACK
    return _undo_next(operation, course, facts, committed)


def backoff(attempt: int) -> float:
    return float(min(60.0, 0.5 * 2 ** min(attempt - 1, 10)))


def _enter(operation: AnyOperation, course: Course, facts: object, position: int, committed: bool) -> Go | End:
    """Start the step at `position`, passing over those without a target."""
    limit = len(operation.course) if course.mode == ENDING else len(operation.steps)
    while position < limit:
        step = operation.course[position]
        targets = list(step.on.targets(facts))
        if targets:
            course.at, course.targets = step.name, targets
            return _begin_target(operation, course)
        position += 1
    whole = course.mode == FORWARD and not _was_abandoned(course)
    return End("done") if whole else End(_ending_state(course, committed))


def _begin_target(operation: AnyOperation, course: Course) -> Go:
    """Take the next target; from now on the step counts as begun (law 7)."""
    target = course.targets.pop(0)
    begun = Begun(course.at, target.host, target.copy)
    if operation.step(course.at).undo is not None and begun not in course.stack:
        course.stack.append(begun)
    return Go(step=course.at, way="do", target=target)


def _undo_next(operation: AnyOperation, course: Course, facts: object, committed: bool) -> Go | End:
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
    return "failed" if committed or _was_abandoned(course) else "undone"


def _was_abandoned(course: Course) -> bool:
    return course.problem is not None and course.problem.code == ABANDONED


def inherit(stack: Sequence[Begun], operation_id: str, kind: str) -> list[Begun]:
    """Return the undo stack of a superseded operation for its heir; entries that it had inherited keep their first
    owner."""
    return [b if b.owner else Begun(b.step, b.host, b.copy, operation_id, kind) for b in stack]
