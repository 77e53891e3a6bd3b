"""Which step a conductor takes, and what an abandoned one says: decided by given records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.cause import Cause
from kilonova.engine import take
from kilonova.engine.abandon import _problem
from kilonova.engine.course import ABANDONED, Problem
from kilonova.engine.findings import Intervention

OP = {"is_live": True, "ordinal": 3}
READY = {"host": "", "open": 1, "state": "ready", "worker": None}
ABANDONED_BEFORE = Problem(code=ABANDONED, message="bind was abandoned by a: b", step="bind")
MINE = {**READY, "state": "taken", "worker": "me"}


@pytest.mark.parametrize(
    ("op", "row", "is_due", "early", "calls", "is_taken"),
    [
        (OP, READY, True, None, 1, True),
        (OP, READY, False, None, 1, False),
        (OP, READY, False, 3, 1, True),  # what it waits for may be there
        (OP, READY, False, 2, 1, False),  # that was another step
        (OP, {**READY, "host": "host1"}, True, None, 1, False),
        (OP, {**READY, "open": 0}, True, None, 1, False),
        (OP, None, True, None, 1, False),
        ({**OP, "is_live": False}, READY, True, None, 1, False),
        (None, READY, True, None, 1, False),
        (OP, MINE, True, None, 1, False),
        (OP, MINE, True, None, 2, True),  # our own COMMIT was unknown
        (OP, {**MINE, "worker": "other"}, True, None, 2, False),
        (OP, {**MINE, "state": "failed"}, True, None, 2, False),
    ],
)
def test_a_conductor_takes_a_step_that_is_due_and_nobodys(
    monkeypatch: pytest.MonkeyPatch, op: Any, row: Any, is_due: bool, early: int | None, calls: int, is_taken: bool
) -> None:
    taken: list[str] = []

    def answering(value: Any) -> Any:
        async def answer(*given: Any, **named: Any) -> Any:
            return value

        return answer

    async def mark(tx: Any, op: Any, step: Any, row: Any, worker: str) -> None:
        taken.append(worker)

    async def write(journal: Any, body: Any) -> Any:
        results = [await body(None) for _ in range(calls)]  # repeated when its COMMIT was unknown
        return results[-1]

    monkeypatch.setattr(take.log, "load", answering(op and SimpleNamespace(**op)))
    monkeypatch.setattr(take.log, "fetch_step", answering(row))
    monkeypatch.setattr(take.log, "is_due", answering(is_due))
    monkeypatch.setattr(take, "_step", answering(("go", "step")))
    monkeypatch.setattr(take, "_mark_taken", mark)
    monkeypatch.setattr(take, "load_server", answering(None))
    engine: Any = SimpleNamespace(worker="me", write=write)
    journal: Any = None
    following = asyncio.run(take.take_control(engine, journal, "o", early=early))
    assert (following is not None) is is_taken
    assert taken == (["me"] * (1 if calls == 1 or row is MINE else 0) if is_taken else [])


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (None, "plug was abandoned by op: gone"),
        (Problem(code="broken", message="no space", step="copy"), "copy: no space plug was abandoned by op: gone"),
        (
            ABANDONED_BEFORE,
            "bind was abandoned by a: b plug was abandoned by op: gone",
        ),
    ],
)
def test_the_first_reason_is_said_once(before: Problem | None, text: str) -> None:
    cause = Cause(user_id="op", project_id="", through="test", request_id="r")
    op: Any = SimpleNamespace(course=SimpleNamespace(problem=before))
    step: Any = SimpleNamespace(name="plug")
    problem = _problem(op, step, Intervention("abandon", cause, "gone"))
    assert (problem.message, problem.code, problem.step) == (text, ABANDONED, "plug")
