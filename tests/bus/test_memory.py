"""Only the bus in memory: weather, processes that die, and whose context a handler runs in."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Sequence

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import NoAnswer
from kilonova.world import Handler
from tests.bus.conftest import memory_site

PROCESS = contextvars.ContextVar("process", default="")


class Forecast:
    """The fates of messages by (source, target), one after the other; calm weather where nothing is foretold."""

    def __init__(self, **fates: list[Sequence[float]]) -> None:
        self.fates_left = fates
        self.asked: list[tuple[str, str, str]] = []

    def fates(self, source: str, target: str, subject: str) -> Sequence[float]:
        self.asked.append((source, target, subject))
        left = self.fates_left.get(f"{source}_{target}")
        return left.pop(0) if left else (0.0,)


def counting(heard: list[bytes]) -> Handler:
    async def count(body: bytes) -> bytes:
        heard.append(body)
        return b"%d" % len(heard)

    return count


async def pair(weather: Forecast | None, heard: list[bytes]) -> tuple[MemoryBus, MemoryBus, MemoryHub]:
    hub = MemoryHub(weather)
    asker, server = MemoryBus(hub, "a"), MemoryBus(hub, "b")
    await server.serve("work", counting(heard))
    return asker, server, hub


def test_weather_is_asked_for_the_question_and_for_the_answer() -> None:
    async def body() -> None:
        weather, heard = Forecast(), []
        asker, _, _ = await pair(weather, heard)
        assert await asker.call("work", b"x") == b"1"
        await asker.cast("work", b"y")
        assert weather.asked == [("a", "b", "work"), ("b", "a", "work"), ("a", "b", "work")]

    asyncio.run(body())


@pytest.mark.parametrize(("way", "reached"), [("a_b", []), ("b_a", [b"x"])])
def test_a_lost_message_is_silence(way: str, reached: list[bytes]) -> None:
    async def body() -> None:
        heard: list[bytes] = []
        asker, _, _ = await pair(Forecast(**{way: [()]}), heard)
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            await asker.call("work", b"x", timeout=0.2)
        assert time.monotonic() - began > 0.15
        assert heard == reached
        assert await asker.call("work", b"y", timeout=0.2) == b"%d" % (len(reached) + 1)

    asyncio.run(body())


def test_a_late_answer_is_waited_for_and_a_later_one_is_not() -> None:
    async def body() -> None:
        heard: list[bytes] = []
        asker, _, _ = await pair(Forecast(a_b=[(0.1,), (0.0,)], b_a=[(0.1,), (0.3,)]), heard)
        began = time.monotonic()
        assert await asker.call("work", b"x", timeout=2) == b"1"
        assert time.monotonic() - began > 0.19
        with pytest.raises(NoAnswer):
            await asker.call("work", b"y", timeout=0.1)
        await asyncio.sleep(0.3)  # the answer comes now, to nobody
        assert heard == [b"x", b"y"]

    asyncio.run(body())


def test_a_doubled_question_runs_twice_and_the_first_answer_counts() -> None:
    async def body() -> None:
        heard: list[bytes] = []
        asker, _, _ = await pair(Forecast(a_b=[(0.0, 0.05)], b_a=[(0.0, 0.01)]), heard)
        assert await asker.call("work", b"x") == b"1"
        await asyncio.sleep(0.1)
        assert heard == [b"x", b"x"]

    asyncio.run(body())


def test_different_delays_change_the_order() -> None:
    async def body() -> None:
        heard: list[bytes] = []
        asker, _, _ = await pair(Forecast(a_b=[(0.1,), (0.05,), (0.0,)]), heard)
        for number in (b"1", b"2", b"3"):
            await asker.cast("work", number)
        await asyncio.sleep(0.2)
        assert heard == [b"3", b"2", b"1"]

    asyncio.run(body())


def test_under_weather_nobody_there_is_silence_too() -> None:
    async def body() -> None:
        asker = MemoryBus(MemoryHub(Forecast()), "a")
        began = time.monotonic()
        with pytest.raises(NoAnswer, match="within"):
            await asker.call("nowhere", b"", timeout=0.1)
        assert time.monotonic() - began > 0.05

    asyncio.run(body())


@pytest.mark.parametrize("weather", [None, Forecast()])
def test_a_killed_process_answers_nothing_more(weather: Forecast | None) -> None:
    async def body() -> None:
        hub, heard = MemoryHub(weather), []
        asker, server = MemoryBus(hub, "a"), MemoryBus(hub, "b")

        async def slow(body: bytes) -> bytes:
            heard.append(body)
            await asyncio.sleep(0.05)
            return b"too late"

        await server.serve("work", slow)
        pending = asyncio.create_task(asker.call("work", b"x", timeout=0.2))
        await asyncio.sleep(0.02)
        hub.detach("b")
        assert not server.is_connected()
        with pytest.raises(NoAnswer, match="within"):
            await pending
        with pytest.raises(NoAnswer):
            await asker.call("work", b"y", timeout=0.1)
        with pytest.raises(NoAnswer):
            await server.call("work", b"from the dead", timeout=0.1)
        assert heard == [b"x"]

    asyncio.run(body())


def test_what_was_on_its_way_reaches_the_restarted_process() -> None:
    async def body() -> None:
        before: list[bytes] = []
        after: list[bytes] = []
        asker, _, hub = await pair(Forecast(a_b=[(0.1,)]), before)
        await asker.cast("work", b"x")
        hub.detach("b")
        await MemoryBus(hub, "b").serve("work", counting(after))
        hub.detach("a")  # the sender's death does not call it back
        await asyncio.sleep(0.15)
        assert (before, after) == ([], [b"x"])

    asyncio.run(body())


def test_a_killed_process_has_no_turn_among_those_who_share() -> None:
    async def body() -> None:
        hub, heard = MemoryHub(), {name: list[bytes]() for name in "bcd"}
        asker = MemoryBus(hub, "a")
        for name, mine in heard.items():
            await MemoryBus(hub, name).serve("work", counting(mine), shared=True)
        hub.detach("c")
        for _ in range(6):
            await asker.call("work", b"x", timeout=1)
        assert {name: len(mine) for name, mine in heard.items()} == {"b": 3, "c": 0, "d": 3}

    asyncio.run(body())


@pytest.mark.parametrize("weather", [None, Forecast()])
def test_handlers_run_in_the_context_of_who_served(weather: Forecast | None) -> None:
    async def body() -> None:
        hub = MemoryHub(weather)
        asker, server = MemoryBus(hub, "a"), MemoryBus(hub, "b")

        async def whose(body: bytes) -> bytes:
            here = PROCESS.get()
            PROCESS.set("spoilt")  # must not reach the next handler
            return here.encode()

        async def serve() -> None:
            PROCESS.set("b")
            await server.serve("whose", whose)

        async def ask() -> None:
            PROCESS.set("a")
            assert [await asker.call("whose", b"") for _ in range(2)] == [b"b", b"b"]
            assert PROCESS.get() == "a"

        await asyncio.create_task(serve())
        await asyncio.create_task(ask())

    asyncio.run(body())


def test_a_cancelled_question_leaves_nothing_behind() -> None:
    async def body() -> None:
        heard: list[bytes] = []
        asker, _, _ = await pair(Forecast(b_a=[(0.05,)]), heard)
        question = asyncio.create_task(asker.call("work", b"x"))
        await asyncio.sleep(0.01)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        await asyncio.sleep(0.1)
        assert heard == [b"x"]

    asyncio.run(body())


def test_closing_ends_the_handlers_that_run() -> None:
    ended: list[str] = []

    async def forever(body: bytes) -> bytes:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("handler")
        return b""

    site = memory_site()

    async def body(_: object) -> None:
        asker, server = await site.end("a"), await site.end("b")
        await server.serve("work", forever)
        await asker.cast("work", b"")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    site.run(body)
    assert ended == ["handler"]
