"""A killed process says nothing more: no cancellation, no finally, no timer, no destructor; the others go on."""

import asyncio
import contextlib
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kilonova.sim.loop.event_loop import Deadlock, SimLoop
from kilonova.sim.loop.process import Process, current_process


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


@contextlib.asynccontextmanager
async def noting(log: list[str], what: str) -> AsyncIterator[None]:
    try:
        yield
    finally:
        log.append(f"left {what}")


async def careful(log: list[str], name: str) -> None:
    """Says something at each exit a coroutine can have."""
    try:
        async with noting(log, name):
            while True:
                await asyncio.sleep(1)
                log.append(name)
    except BaseException as error:
        log.append(f"{name} caught {type(error).__name__}")
        raise
    finally:
        log.append(f"{name} finally")


def test_no_block_of_a_killed_process_runs_and_others_go_on(loop: SimLoop) -> None:
    log: list[str] = []
    victim, other = Process("victim"), Process("other")
    loop.spawn(victim, careful(log, "v"))
    loop.spawn(other, careful(log, "o"))
    loop.run_for(2)
    loop.kill(victim)
    gc.collect()
    loop.run_for(2)
    gc.collect()
    assert log == ["v", "o", "v", "o", "o", "o"]
    assert not victim.alive and other.alive


def test_everything_started_from_a_process_dies_with_it(loop: SimLoop) -> None:
    log: list[str] = []

    async def parent() -> None:
        process = current_process()
        assert process is not None
        log.append(process.name)
        child = asyncio.create_task(careful(log, "child"))
        asyncio.get_running_loop().call_later(3, log.append, "timer")
        child.add_done_callback(lambda _: log.append("child done"))
        async with asyncio.timeout(2.5), asyncio.TaskGroup() as group:
            group.create_task(careful(log, "grandchild"))

    process = Process("p")
    loop.spawn(process, parent())
    loop.run_for(1)
    loop.kill(process)
    loop.run_for(100)
    gc.collect()
    assert log == ["p", "child", "grandchild"]


def test_a_task_nobody_refers_to_is_not_collected(loop: SimLoop) -> None:
    log: list[str] = []

    async def wait_alone() -> None:
        try:
            await asyncio.get_running_loop().create_future()  # only this frame knows the future
        finally:
            log.append("collected")

    process = Process("p")
    loop.spawn(process, wait_alone())
    loop.run_for(1)
    gc.collect()
    loop.kill(process)
    gc.collect()
    assert log == []


def test_finished_tasks_are_not_kept(loop: SimLoop) -> None:
    process = Process("p")

    async def one() -> None:
        pass

    first = weakref.ref(loop.spawn(process, one()))
    loop.run_for(1)
    for _ in range(200):
        loop.spawn(process, one())
        loop.run_for(1)
    gc.collect()
    assert first() is None


def test_objects_held_by_a_killed_task_are_not_destroyed_before_the_burial(loop: SimLoop) -> None:
    log: list[str] = []

    class Loud:
        def __del__(self) -> None:
            log.append("destroyed")

    async def hold() -> None:
        loud = Loud()
        await asyncio.sleep(1)
        del loud

    process = Process("p")
    loop.spawn(process, hold())
    loop.run_for(0.5)
    loop.kill(process)
    loop.run_for(5)
    gc.collect()
    assert log == []
    loop.bury()
    gc.collect()
    assert log == ["destroyed"]


def test_an_abandoned_async_generator_of_a_killed_process_is_not_closed(loop: SimLoop) -> None:
    log: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            log.append("generator closed")

    holes: dict[str, list[Any]] = {}

    async def take_one(name: str) -> None:
        generator = numbers()
        await anext(generator)
        holes[name] = [generator]

    dead, alive = Process("dead"), Process("alive")
    loop.spawn(dead, take_one("dead"))
    loop.spawn(alive, take_one("alive"))
    loop.run_for(1)
    loop.kill(dead)
    holes.pop("dead")
    gc.collect()
    loop.run_for(1)
    assert log == []
    holes.pop("alive")
    gc.collect()
    loop.run_for(1)
    assert log == ["generator closed"], "a live process's generator is closed as usual"


def test_a_future_shared_between_processes(loop: SimLoop) -> None:
    log: list[str] = []
    shared: asyncio.Future[str] = loop.create_future()

    async def wait_for_it(name: str) -> None:
        log.append(f"{name} got {await shared}")

    async def answer() -> None:
        await asyncio.sleep(2)
        shared.set_result("answer")

    dead, alive, giver = Process("dead"), Process("alive"), Process("giver")
    loop.spawn(dead, wait_for_it("dead"))
    loop.spawn(alive, wait_for_it("alive"))
    loop.spawn(giver, answer())
    loop.run_for(1)
    loop.kill(dead)
    loop.run_for(5)
    assert log == ["alive got answer"]


def test_who_waits_for_a_dead_process_waits_for_ever(loop: SimLoop) -> None:
    process = Process("p")
    task = loop.spawn(process, asyncio.sleep(1, "done"))
    loop.kill(process)
    with pytest.raises(Deadlock):
        loop.run_until_complete(task)


def test_a_process_may_be_killed_from_within_and_ends_at_its_next_await(loop: SimLoop) -> None:
    log: list[str] = []
    process = Process("p")

    async def suicide() -> None:
        try:
            loop.kill(process)
            await asyncio.sleep(0)
            log.append("went on")
        finally:
            log.append("finally")

    loop.spawn(process, suicide())
    loop.run_for(1)
    assert log == []


def test_what_a_dead_process_is_asked_to_do_is_not_done(loop: SimLoop) -> None:
    process = Process("p")
    loop.kill(process)
    loop.spawn(process, careful([], "never started"))
    loop.run_for(3)
    assert process.points == 0


def test_kill_hooks_run_once_and_outside_of_the_process(loop: SimLoop) -> None:
    seen: list[object] = []
    process = Process("p")
    process.on_kill(lambda: seen.append(current_process()))

    async def kill_from_inside() -> None:
        loop.kill(process)

    loop.spawn(process, kill_from_inside())
    loop.run_for(1)
    loop.kill(process)
    assert seen == [None]


def test_what_a_kill_hook_starts_belongs_to_nobody_dead(loop: SimLoop) -> None:
    log: list[str] = []
    process, successor = Process("p"), Process("p")
    process.on_kill(lambda: loop.spawn(successor, careful(log, "successor")))
    loop.spawn(process, careful(log, "first"))
    loop.crash_when(lambda at: loop.time() >= 2, loop.kill)
    loop.run_for(4)
    assert log == ["first", "successor", "successor"]


def test_the_burial_makes_no_noise(loop: SimLoop, capfd: pytest.CaptureFixture[str]) -> None:
    unraisable: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, unraisable.append

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)

    async def fails() -> None:
        raise ValueError("nobody asks")

    try:
        process = Process("p")
        for coro in (stubborn(), fails(), careful([], "x")):
            loop.spawn(process, coro)
        loop.run_for(0.5)
        loop.kill(process)
        loop.spawn(process, careful([], "not even begun"))
        loop.close()
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert unraisable == []
    assert capfd.readouterr().err == ""


def test_what_is_closed_at_the_burial_cannot_start_anything(loop: SimLoop) -> None:
    log: list[str] = []

    async def last_wish() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            loop.call_soon(log.append, "wish")

    loop.spawn(Process("p"), last_wish())
    loop.run_for(0.5)
    loop.bury()
    loop.run_for(1)
    assert log == []


def test_a_frozen_process_stands_still_and_catches_up(loop: SimLoop) -> None:
    """As SIGSTOP and SIGCONT: nothing of it runs meanwhile, what came due is done in order afterwards."""
    log: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            log.append((name, loop.time()))

    stopped, other = Process("stopped"), Process("other")
    loop.spawn(stopped, tick("s"))
    loop.spawn(other, tick("o"))
    loop.run_for(1)
    loop.freeze(stopped)
    loop.run_for(2)
    assert log == [("s", 1), ("o", 1), ("o", 2), ("o", 3)]
    loop.thaw(stopped)
    loop.run_for(1)
    assert log[4:] == [("s", 3), ("o", 4), ("s", 4)]


def test_a_process_can_be_frozen_at_a_point_and_killed_while_frozen(loop: SimLoop) -> None:
    log: list[str] = []
    process = Process("p")
    loop.crash_when(2, loop.freeze)
    loop.spawn(process, careful(log, "p"))
    loop.run_for(5)
    assert log == [] and process.points == 2
    loop.kill(process)
    loop.thaw(process)
    loop.run_for(5)
    assert log == []
