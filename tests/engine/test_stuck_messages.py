"""What an operation says that waits for an operator: the reason, and what to type (law 17)."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.operation import FORWARD
from kilonova.engine.course import Course, Go, Problem
from kilonova.engine.model import Target
from kilonova.engine.stuck_messages import standing, stuck_sentence
from kilonova.operations import REGISTRY
from tests.engine.rows_of_one import operation

DECLARE = "openstack compute service set --down host1 nova-compute"
DOWN = f" To go on without it, fence host1 or declare it down: {DECLARE}"
ABANDON = " To go on without it: kilonova op abandon o --reason TEXT"
PROBLEM = Problem(code="refused", message="it is busy.")


@pytest.mark.parametrize(
    ("kind", "step", "way", "host", "attempt", "text"),
    [
        (
            "stop",
            "stop_instance",
            "undo",
            "host1",
            1,
            "stop_instance on host1 to be undone: it is busy (failed 1 time,",
        ),
        ("stop", "stop_instance", "do", "host1", 2, "stop_instance on host1 to be done: it is busy (failed 2 times,"),
        ("migrate", "claim", "undo", "", 10, "claim to be undone: it is busy (failed 10 times,"),
    ],
)
def test_it_says_what_was_refused_how_often_and_why(
    kind: str, step: str, way: str, host: str, attempt: int, text: str
) -> None:
    go = Go(step=step, way=way, target=Target(host), attempt=attempt)
    sentence = stuck_sentence(operation(), REGISTRY[kind].step(step), go, PROBLEM)
    assert sentence.startswith(f"{text} tried again every minute). To try now: kilonova op resume o.")


STEPS = [
    pytest.param(step, way, id=f"{kind} {step.name} {way}")
    for kind, of_kind in REGISTRY.items()
    for step in of_kind.course
    for way in ("do", "undo")
]


@pytest.mark.parametrize(("step", "way"), STEPS)
def test_it_says_how_to_go_on_without_the_step(step: Any, way: str) -> None:
    """Not for a step that needs a database only. What stops or removes a copy is left to its host, which is dead."""
    go = Go(step=step.name, way=way, target=Target("host1"))
    sentence = stuck_sentence(operation(), step, go, PROBLEM)
    exits = "" if step.only_rows else DOWN if step.ends_copy(way) else ABANDON
    assert sentence.partition("op resume o.")[2] == exits


def test_each_of_the_exits_is_some_steps() -> None:
    steps = [step for of_kind in REGISTRY.values() for step in of_kind.course]
    assert any(step.only_rows for step in steps)
    assert {step.ends_copy(way) for step in steps for way in ("do", "undo") if not step.only_rows} == {True, False}


@pytest.mark.parametrize(
    ("stuck", "way", "said"),
    [
        ("", "do", ("running", None)),
        ("", "undo", ("undoing", None)),
        ("why", "do", ("waiting", "why")),
        ("why", "undo", ("waiting", "why")),
    ],
)
def test_an_operation_that_is_stuck_says_so_as_long_as_it_is(stuck: str, way: str, said: tuple[str, str]) -> None:
    op = operation()
    op.course = Course(mode=FORWARD, stuck=stuck)
    assert standing(op, way) == said
