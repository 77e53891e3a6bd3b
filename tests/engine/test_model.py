"""The building blocks of operations: what a step says of itself, and where a step stands in its operation."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.params import Params, ServerSpec
from kilonova.domain.server import Flavor
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import CONTROL, DEBT, FAIL, Operation, Retired, Step


async def does(ctx: Any) -> None: ...
async def undoes(ctx: Any) -> None: ...


def step(name: str = "a", **values: Any) -> Any:
    return Step(name, does, on=CONTROL, **{"undo": undoes, **values})


class Three(Operation[Any, Any]):
    name, facts_type, params_type = "three", OperationFacts, Params
    steps = (step("a"), step("b"))
    ending = (step("c"),)
    retired = (Retired(step("old"), then="b"),)


@pytest.mark.parametrize(
    ("values", "way", "ends"),
    [
        ({}, "do", False),
        ({"when_declared": FAIL}, "do", False),
        ({"when_declared": DEBT}, "do", True),
        ({"when_declared": DEBT}, "undo", False),
        ({"starts_guest": True}, "do", False),
        ({"starts_guest": True}, "undo", True),
        ({"undo_debt": True}, "do", False),
        ({"undo_debt": True}, "undo", True),
    ],
)
def test_which_steps_stop_or_remove_a_copy(values: dict[str, Any], way: str, ends: bool) -> None:
    """Law 17: if such a step is skipped, its host owes it."""
    assert step(**values).ends_copy(way) is ends


def test_a_step_is_done_or_undone() -> None:
    one = step()
    assert (one.control_work("do"), one.control_work("undo")) == (does, undoes)
    assert (one.host_work("do"), one.host_work("undo")) == (does, undoes)


@pytest.mark.parametrize(("event", "events"), [(None, ()), ("one", ("one",)), (("one", "two"), ("one", "two"))])
def test_the_events_of_a_step(event: Any, events: tuple[str, ...]) -> None:
    assert step(event=event).events == events


def test_where_a_step_stands() -> None:
    """A retired one leads to the step that took its place, which is done after it (law 14)."""
    three = Three()
    assert [one.name for one in three.course] == ["a", "b", "c"]
    assert [three.position_of(name) for name in ("a", "b", "c", "old")] == [0, 1, 2, 1]
    assert [three.position_after(name) for name in ("a", "b", "c", "old")] == [1, 2, 3, 1]
    assert [three.step(name).name for name in ("a", "c", "old")] == ["a", "c", "old"]
    with pytest.raises(LookupError, match="operation three has no step never"):
        three.step("never")


def test_what_an_operation_does_unless_it_says_otherwise() -> None:
    three: Any = Three()
    spec = ServerSpec(project_id="p", user_id="u", created_at=1.0, name="n", flavor=Flavor("f", 1, 1, 1))
    assert (three.requested_server(None, spec), three.requested_server(None, Params())) == (spec, None)
    assert not three.joins(None) and three.outlook(None, None) == {} and three.check(None) == OperationFacts()
    assert three.message_for(Problem(code="x", message="secret of the cloud")) == "The operation failed."
