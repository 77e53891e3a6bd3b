"""Rounds of a periodic task: each journal by itself, one round at a time, whatever a round ends with."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor import periodic
from kilonova.conductor.periodic import PeriodicTask
from kilonova.domain.errors import Refused, Unreachable
from kilonova.sim.loop.event_loop import SimLoop

JOURNALS: list[Any] = [SimpleNamespace(name=name) for name in ("control", "cell1", "cell2")]


def run(story: Any) -> None:
    loop = SimLoop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


def test_a_journal_that_hangs_delays_the_others_for_a_moment_only() -> None:
    async def story() -> None:
        rounds, hangs = list[str](), asyncio.Event()

        async def work(journal: Any) -> None:
            rounds.append(journal.name)
            if journal.name == "cell1":
                await hangs.wait()

        task, loop = PeriodicTask(work), asyncio.get_running_loop()
        began = loop.time()
        await task.go(JOURNALS)
        assert loop.time() - began == periodic.PATIENCE
        assert rounds == ["control", "cell1", "cell2"]
        await task.go(JOURNALS)
        assert rounds[3:] == ["control", "cell2"], "its last round has not ended"
        hangs.set()
        await asyncio.sleep(0)
        await task.go(JOURNALS)
        assert rounds[5:] == ["control", "cell1", "cell2"]

    run(story)


def test_a_round_is_over_when_its_work_is() -> None:
    async def story() -> None:
        ended = list[str]()

        async def work(journal: Any) -> None:
            await asyncio.sleep(0.1)
            ended.append(journal.name)

        await PeriodicTask(work).go(JOURNALS)
        assert ended == ["control", "cell1", "cell2"]

    run(story)


def test_without_journals_there_is_nothing_to_do() -> None:
    run(lambda: PeriodicTask(SimpleNamespace()).go([]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (Unreachable("no answer"), logging.DEBUG, "work of control: no answer"),
        (Refused("busy", "it is busy"), logging.WARNING, "work of control: it is busy"),
        (KeyError("copy"), logging.ERROR, "work of control failed"),
    ],
)
def test_what_a_round_ends_with_is_logged_and_the_next_one_begins(
    caplog: pytest.LogCaptureFixture, error: Exception, level: int, text: str
) -> None:
    async def story() -> None:
        async def work(journal: Any) -> None:
            raise error

        task = PeriodicTask(work)
        for _ in range(2):
            await task.go(JOURNALS[:1])

    with caplog.at_level(logging.DEBUG, logger=periodic.__name__):
        run(story)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, text)] * 2


def test_a_task_that_stops_leaves_nothing_under_way() -> None:
    async def story() -> None:
        ended = list[str]()

        async def work(journal: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.1)
                ended.append(journal.name)

        task = PeriodicTask(work)
        await task.go(JOURNALS)
        await task.stop()
        assert sorted(ended) == ["cell1", "cell2", "control"]

    run(story)
