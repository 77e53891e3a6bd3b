"""The log of host states goes on, whatever a look at a cell ends with."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor.host_log import HostLog
from kilonova.domain.errors import Unreachable
from kilonova.domain.host import HostState
from tests.support.distinct import distinct_settings


class Cell:
    name = "cell1"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def read(self, body: Any) -> Any:
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def looked(cell: Cell) -> list[float]:
    """Return the seconds between the looks."""
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    stores = SimpleNamespace(cells=lambda: ["cell1"], cell=lambda name: cell)
    world = SimpleNamespace(db=stores, clock=SimpleNamespace(sleep=sleep))
    engine: Any = SimpleNamespace(world=world, settings=distinct_settings())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(HostLog(engine).keep_looking(5.0))
    return slept


@pytest.mark.parametrize("error", [ValueError("a row that cannot be read"), Unreachable("cell1 does not answer")])
def test_the_log_goes_on_after_an_error(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    up, down = HostState("host1", "up", "host1 answered"), HostState("host1", "down", "host1 is silent")
    with caplog.at_level(logging.INFO):
        assert looked(Cell({"host1": up}, error, {"host1": down})) == [5.0, 5.0, 5.0]
    changes = [record.getMessage() for record in caplog.records if "host state changed" in record.getMessage()]
    assert changes == ["host state changed: host=host1 cell=cell1 state=down before=up reason=host1 is silent"]
    unexpected = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert unexpected == (["host states of cell1 cannot be read"] if isinstance(error, ValueError) else [])


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        (["up"], []),
        (["up", "up"], []),
        (["down"], [("down", "not seen")]),
        (["down", "down"], [("down", "not seen")]),
        (["up", "unknown", "up"], [("unknown", "up"), ("up", "unknown")]),
        (["down", "returning", "up"], [("down", "not seen"), ("returning", "down"), ("up", "returning")]),
    ],
)
def test_each_change_is_logged_once(
    states: list[str], lines: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """At the start only what is not as it should be."""
    with caplog.at_level(logging.INFO):
        looked(Cell(*({"host1": HostState("host1", state, "why")} for state in states)))
    text = "host state changed: host=host1 cell=cell1 state={} before={} reason=why"
    assert [record.getMessage() for record in caplog.records] == [text.format(*line) for line in lines]
