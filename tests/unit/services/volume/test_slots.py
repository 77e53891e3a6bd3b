"""Slots for work on files: how many at once, of whom, and whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kilonova.services.volume.slots import FairSlots


def test_slots_are_shared_fairly() -> None:
    """One project asks for ten first; another that comes later is the next, not the eleventh."""

    async def story() -> list[str]:
        slots, order, ends = FairSlots(2), [], asyncio.Event()

        async def work(project: str) -> None:
            async with slots.taken(project):
                order.append(project)
                await ends.wait()

        tasks = [asyncio.create_task(work("greedy")) for _ in range(10)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(work("modest")))
        cancelled = asyncio.create_task(work("third"))
        for _ in range(3):
            await asyncio.sleep(0)
        cancelled.cancel()
        assert order == ["greedy", "modest"], "one slot is never the greedy one's"
        ends.set()
        await asyncio.gather(*tasks)
        return order

    assert len(asyncio.run(story())) == 11


class Queue:
    """Work that runs until it is ended."""

    def __init__(self, most: int) -> None:
        self.slots, self.running = FairSlots(most), list[str]()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    def add(self, *names: str) -> None:
        """A piece for each name; its project is the first letter."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name))

    async def _work(self, name: str) -> None:
        async with self.slots.taken(name[0]):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, *names: str) -> list[str]:
        for name in names:
            self._ends[name].set()
        return await self.now()

    def cancel(self, name: str) -> None:
        self._tasks[name].cancel()

    async def cancel_when_granted(self, name: str, ends: str) -> None:
        """`ends` gives its slot to `name`, which is cancelled before it has noticed."""
        self._ends[ends].set()
        for _ in range(5):
            await asyncio.sleep(0)
            if self.slots._running[name[0]]:
                assert name not in self.running
                self.cancel(name)
                return
        raise AssertionError(f"{name} did not get the slot")

    async def now(self) -> list[str]:
        """Which run, when all that could happen has happened."""
        for _ in range(10):
            await asyncio.sleep(0)
        return sorted(self.running)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for task in self._tasks.values():
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_one_project_leaves_a_slot_to_others(most: int) -> None:
    async def story() -> None:
        queue = Queue(most)
        queue.add(*(f"a{number}" for number in range(7)))
        alone = await queue.now()
        assert alone == [f"a{number}" for number in range(max(1, most - 1))]
        queue.add("b0", "c0")
        assert await queue.now() == [*alone, "b0"][:most]
        longest_waiting = {1: ["a1"], 2: ["a1", "b0"]}
        assert await queue.end("a0") == longest_waiting.get(most, [*alone[1:], "b0", "c0"])
        await queue.stop()

    asyncio.run(story())


def test_who_has_least_is_next_and_then_who_waits_longest() -> None:
    async def story() -> None:
        queue = Queue(4)
        queue.add("a0", "a1", "b0", "b1", "a2", "b2", "c0", "d0")
        assert await queue.now() == ["a0", "a1", "b0", "b1"]
        assert await queue.end("a0") == ["a1", "b0", "b1", "c0"], "c has none, and came before d"
        assert await queue.end("b0") == ["a1", "b1", "c0", "d0"]
        assert await queue.end("c0") == ["a1", "a2", "b1", "d0"], "a and b have one each, and a waits longer"
        assert await queue.end("a1", "a2", "b1", "d0") == ["b2"]
        await queue.stop()

    asyncio.run(story())


def test_who_gives_up_takes_nothing_along() -> None:
    """Cancelled while it waits, while it runs, and between its grant and its start."""

    async def story() -> None:
        queue = Queue(2)
        queue.add("a0", "b0", "c0", "d0")
        assert await queue.now() == ["a0", "b0"]
        queue.cancel("c0")
        queue.cancel("a0")
        assert await queue.now() == ["b0", "d0"]
        queue.add("e0", "f0")
        await queue.now()
        await queue.cancel_when_granted("e0", "b0")
        assert await queue.now() == ["d0", "f0"]
        assert await queue.end("d0", "f0") == []
        queue.add("a1", "b1", "c1")
        assert await queue.now() == ["a1", "b1"], "as many as at the beginning"
        await queue.stop()

    asyncio.run(story())
