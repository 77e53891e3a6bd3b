"""Operations that wait for a database or a host are looked at once, when it answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kilonova.engine import waiting_list
from kilonova.engine.waiting_list import WaitingList


def named(name: str) -> Any:
    return SimpleNamespace(name=name)


def test_each_is_taken_once_with_the_step_that_waits_last() -> None:
    waiting, one, other = WaitingList(), named("cell1"), named("control")
    waiting.add(one, "a", 1)
    waiting.add(one, "a", 2)
    waiting.add(other, "a", 7)
    waiting.add(one, "b", 3)
    assert waiting.take() == [(one, "a", 2), (other, "a", 7), (one, "b", 3)]
    assert waiting.take() == []


def test_no_more_than_so_many_are_remembered(monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting_list, "MOST", 2)
    waiting, store = WaitingList(), named("cell1")
    for name in ("a", "b", "c"):
        waiting.add(store, name, 1)
    assert [name for _, name, _ in waiting.take()] == ["a", "b"]
    waiting.add(store, "c", 1)
    assert [name for _, name, _ in waiting.take()] == ["c"], "there is room again"
