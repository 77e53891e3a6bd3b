"""One drive of an operation at a time; a wake-up that comes meanwhile is kept for once afterwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor import service
from kilonova.conductor.service import Conductor
from kilonova.domain.errors import StoreError


def conductor() -> Any:
    made: Any = object.__new__(Conductor)
    made._slots, made._driving, made._again, made._left = asyncio.Semaphore(4), set(), set(), set()
    made._tasks, made._stopping, made.engine = set(), False, None
    return made


@pytest.mark.parametrize("wakes", [0, 1, 5])
@pytest.mark.parametrize("error", [None, StoreError("database cell1: away"), KeyError("copy")])
def test_wake_ups_during_a_drive_cause_one_more(
    monkeypatch: pytest.MonkeyPatch, wakes: int, error: Exception | None
) -> None:
    """Whether it ends well or not."""
    drives: list[str] = []
    journal: Any = SimpleNamespace(name="cell1")

    async def story() -> None:
        one = conductor()

        async def drive(engine: Any, store: Any, operation_id: str, *, early: int | None) -> None:
            drives.append(operation_id)
            if len(drives) == 1:
                for _ in range(wakes):
                    one._begin(journal, operation_id)
            await asyncio.sleep(0)
            if error is not None:
                raise error

        monkeypatch.setattr(service, "drive", drive)
        one._begin(journal, "o")
        for _ in range(50):
            await asyncio.sleep(0)
        assert not one._driving and not one._again and not one._tasks

    asyncio.run(story())
    assert drives == ["o"] * (2 if wakes else 1)


def test_a_conductor_that_stops_leaves_operations_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        one, journal = conductor(), SimpleNamespace(name="cell1")
        one._stopping = True
        one._begin(journal, "o")
        assert one._left == {("cell1", "o")} and not one._tasks

    asyncio.run(story())
