"""Crash points are counted by the loop, the same every time, and any of them can be made the last."""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kilonova.sim.loop.event_loop import SimLoop
from kilonova.sim.loop.process import Process

Trace = list[tuple[float, int, str, int]]  # virtual time, points so far, what, which


def play(crash_at: int | None = None) -> tuple[Trace, int, dict[str, int]]:
    """Two processes that send each other messages, wait, time out and gather; one may crash."""
    loop = SimLoop()
    trace: Trace = []
    mail: asyncio.Queue[int] = asyncio.Queue()
    processes = [Process("asker"), Process("answerer")]

    async def ask() -> None:
        for number in range(5):
            trace.append((loop.time(), loop.points, "ask", number))
            await mail.put(number)
            await asyncio.gather(asyncio.sleep(0.3), asyncio.sleep(0.3), asyncio.sleep(0.1))

    async def answer() -> None:
        try:
            while True:
                number = await asyncio.wait_for(mail.get(), 1)
                trace.append((loop.time(), loop.points, "answer", number))
        finally:
            trace.append((loop.time(), loop.points, "answerer ends", -1))

    for process, coro in zip(processes, (ask(), answer()), strict=True):
        loop.spawn(process, coro)
    if crash_at is not None:
        loop.crash_when(crash_at, loop.kill)
    loop.run_for(10)
    result = (list(trace), loop.points, {process.name: process.points for process in processes})
    loop.close()
    return result


def test_two_runs_are_the_same() -> None:
    first = play()
    gc.collect()
    assert play() == first
    assert first[1] == sum(first[2].values()) > 30


def test_the_same_in_another_python_with_another_hash_seed() -> None:
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_points as t; print(t.play())"
    said = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] == f"{play()}\n".encode()


def test_every_point_can_be_crashed_and_what_came_before_is_unchanged() -> None:
    whole, points, _ = play()
    histories = []
    for point in range(1, points + 1):
        before = [entry for entry in whole if entry[1] < point]
        trace, _, _ = play(crash_at=point)
        assert trace[: len(before)] == before
        histories.append(trace)
    assert [what for _, _, what, _ in histories[0]] == ["answerer ends"], "the asker died before its first line"
    assert sum(history != whole for history in histories) > points / 2


def test_the_crash_comes_before_the_callback_runs() -> None:
    loop = SimLoop()
    log: list[str] = []

    async def steps() -> None:
        for number in range(5):
            log.append(str(number))
            await asyncio.sleep(0)

    process = Process("p")
    loop.spawn(process, steps())
    loop.crash_when(3, loop.kill)
    loop.run_for(1)
    assert log == ["0", "1"]
    assert (loop.points, process.points) == (3, 3)
    loop.close()


def test_an_action_may_spare_the_process() -> None:
    loop = SimLoop()
    seen: list[str] = []
    process = Process("p")
    task = loop.spawn(process, asyncio.sleep(1, "done"))
    loop.crash_when(2, lambda at: seen.append(at.name))
    loop.run_for(2)
    assert (seen, task.result()) == (["p"], "done")
    loop.close()


def test_an_action_may_kill_everything() -> None:
    loop = SimLoop()
    processes = [Process(name) for name in "abc"]
    for process in processes:
        loop.spawn(process, asyncio.sleep(5))
    loop.crash_when(lambda at: at.name == "b", lambda _: loop.kill_all())
    loop.run_for(10)
    assert [(process.alive, process.points) for process in processes] == [(False, 1), (False, 1), (False, 0)]
    loop.close()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_predicate_is_asked_once_it_held(name: str) -> None:
    loop = SimLoop()
    killed: list[str] = []
    for letter in "ab":
        loop.spawn(Process(letter), asyncio.sleep(1))
    loop.crash_when(lambda at: at.name == name and loop.time() >= 1, lambda at: killed.append(at.name))
    loop.run_for(5)
    assert killed == [name]
    loop.close()


def test_outside_of_processes_nothing_counts() -> None:
    loop = SimLoop()
    loop.run_until_complete(asyncio.sleep(1))
    assert loop.points == 0
    loop.close()
