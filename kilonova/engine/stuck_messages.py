"""Messages of an operation that waits for an operator: the reason, and what to type (law 17)."""

from __future__ import annotations

from kilonova.engine.course import Go, Problem
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyStep


def stuck_sentence(op: Op, step: AnyStep, go: Go, problem: Problem) -> str:
    """Return the sentence that follows "waiting for"."""
    host = go.target.host
    what = f"{step.name}{f' on {host}' if host else ''} to be {'undone' if go.way == 'undo' else 'done'}"
    tries = f"failed {go.attempt} time{'' if go.attempt == 1 else 's'}, tried again every minute"
    why = problem.message.rstrip(".")
    return f"{what}: {why} ({tries}). To try now: kilonova op resume {op.id}.{_exit(op, step, go)}"


def _exit(op: Op, step: AnyStep, go: Go) -> str:
    if step.only_rows:
        return ""
    if step.ends_copy(go.way):
        declare = f"openstack compute service set --down {go.target.host} nova-compute"
        return f" To go on without it, fence {go.target.host} or declare it down: {declare}"
    return f" To go on without it: kilonova op abandon {op.id} --reason TEXT"


def standing(op: Op, way: str) -> tuple[str, str | None]:
    """Return state and `waiting_for` of an operation whose step is ready or taken."""
    if op.course.stuck:
        return "waiting", op.course.stuck
    return ("undoing" if way == "undo" else "running"), None
