"""A step that cannot go on yet is put off, and looked at again when that helps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import NotYet
from kilonova.engine import run
from kilonova.engine.children import MOMENT, SOON
from kilonova.schema.tables import journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, OPERATION, STEP, engine_of, play, store_of
from tests.support.neighbours import Watched, contents


class PutOff:
    """An operation whose step is put off, and what the engine was told meanwhile."""

    def __init__(self, path: Path, *, called: bool = False, of_step: Any = None, **values: Any) -> None:
        self.path, self.values, self.of_step = path, {**OPERATION, **values}, of_step or {}
        self.step = {**STEP, "state": "taken", "worker": "me", "not_before": 9.0, "taken_at": 8.0 if called else 9.5}
        self.woken, self.waits = list[Any](), list[Any]()

    def by(self, wait: NotYet, changes: dict[str, object]) -> tuple[Any, Any]:
        found: list[Any] = []

        async def body(tx: Tx) -> None:
            await rows.put(tx, journal.operations, **self.values)
            for other in ({"operation_id": "0"}, {"ordinal": 1}):
                await rows.put(tx, journal.steps, **{**self.step, **other, "taken_at": 17.5 - self.step["taken_at"]})
            await rows.put(tx, journal.steps, **{**self.step, **self.of_step})
            others = await Watched.since_now(tx, journal.steps)
            one = engine_of(tx)
            one.settings = SimpleNamespace(conductor=SimpleNamespace(poll_seconds=1.0))
            one.wake_in = lambda *given: self.woken.append(given)
            one.waiting = SimpleNamespace(add=lambda store, *given: self.waits.append((store.name, *given)))
            await run.postpone(one, store_of(tx), "o", 2, wait, changes)
            (op,) = await contents(tx, journal.operations)
            found.extend((op, await rows.fetch(tx, journal.steps, operation_id="o", ordinal=2)))
            assert {(row["operation_id"], row["ordinal"]) for row in await others.changed(tx)} <= {("o", 2)}

        play(self.path, body)
        return found[0], found[1]


def test_an_operation_that_waits_says_for_what_and_keeps_what_it_knows(tmp_path: Path) -> None:
    put_off = PutOff(tmp_path)
    op, step = put_off.by(NotYet("host1 to answer", 20.0), {"host": "host2"})
    assert (op["state"], op["waiting_for"]) == ("waiting", "host1 to answer")
    assert '"host":"host2"' in op["facts"]
    assert (step["state"], step["worker"], step["open"]) == ("ready", None, 1)
    assert step["not_before"] == pytest.approx(NOW + 20.0, abs=5.0)
    assert (put_off.woken, put_off.waits) == ([], []), "the next look for work finds it"


def test_one_that_waits_for_an_answer_is_looked_at_when_it_comes(tmp_path: Path) -> None:
    put_off = PutOff(tmp_path)
    put_off.by(NotYet("a database to answer", 20.0, for_answer=True), {})
    assert put_off.waits == [("cell1", "o", 2)]


@pytest.mark.parametrize(
    ("seconds", "called", "woken"),
    [(0.5, False, [0.5]), (1.0, False, []), (20.0, False, []), (20.0, True, [SOON]), (0.5, True, [SOON])],
)
def test_it_is_woken_where_the_next_look_for_work_comes_later(
    tmp_path: Path, seconds: float, called: bool, woken: list[float]
) -> None:
    """A child that has ended meanwhile called its parent: that is not put off."""
    put_off = PutOff(tmp_path, called=called)
    _, step = put_off.by(NotYet("a child", seconds), {})
    assert put_off.woken == [(pytest.approx(after + MOMENT), "cell1", "o") for after in woken]
    assert (step["not_before"] == 9.0) is called and step["state"] == "ready"


@pytest.mark.parametrize("other", [{"ordinal": 3}, {"state": "done", "live": 0}, {"id": "another"}], ids=str)
def test_an_operation_that_has_moved_on_is_not_put_off(tmp_path: Path, other: Any) -> None:
    put_off = PutOff(tmp_path, called=True, **other)
    op, step = put_off.by(NotYet("host1 to answer", 20.0), {"host": "host2"})
    assert op["waiting_for"] is None and "host2" not in op["facts"]
    assert (step["state"], step["worker"], step["not_before"]) == ("taken", "me", 9.0)
    assert put_off.woken == []


def test_a_step_that_has_ended_is_not_put_off(tmp_path: Path) -> None:
    _, step = PutOff(tmp_path, of_step={"open": 0}).by(NotYet("host1 to answer", 20.0), {})
    assert (step["state"], step["worker"], step["not_before"]) == ("taken", "me", 9.0)
