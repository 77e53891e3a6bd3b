"""What a host tells of guests that were started or have ended: until it is noted, and as it is by then."""

from __future__ import annotations

import asyncio
from typing import Any

from kilonova.compute.power_news import AGAIN_SECONDS, MOST_AT_ONCE, PowerNews
from kilonova.domain.errors import Failed
from kilonova.domain.guest import Copy


class Flipping:
    """A driver with one guest, whose power the test switches; and its clock."""

    def __init__(self) -> None:
        self.on, self._changes = True, asyncio.Queue[Copy]()
        self.fails, self.slept = 0, list[float]()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    async def switch(self, on: bool, server: str = "s") -> None:
        self.on = on
        self._changes.put_nowait(Copy(server, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def power_change(self) -> Copy:
        return await self._changes.get()

    async def is_on(self, server: str, copy: int) -> bool:
        if self.fails:
            self.fails -= 1
            raise Failed("driver_error", "libvirt does not answer")
        return self.on


def test_what_has_changed_since_it_was_told_is_told_again() -> None:
    async def story() -> None:
        driver: Any = Flipping()
        news = PowerNews(driver, driver, lambda: None)
        watching = asyncio.create_task(news.watch())
        await driver.switch(False)
        told = news.take(())
        assert told == [("s", 1, False)]
        await driver.switch(True)  # before the answer
        news.note(told, [("s", 1)])
        assert news.take(()) == [("s", 1, True)]
        news.note(news.take(()), [("s", 1)])
        assert news.take(()) == []
        watching.cancel()

    asyncio.run(story())


def test_what_is_not_noted_does_not_keep_the_others_back() -> None:
    """A conductor notes nothing of a server that an operation is at work on, for as long as that takes."""

    async def story() -> None:
        driver: Any = Flipping()
        news = PowerNews(driver, driver, lambda: None)
        watching = asyncio.create_task(news.watch())
        for number in range(MOST_AT_ONCE):
            await driver.switch(False, f"busy{number}")
        await driver.switch(False, "idle")
        told = news.take(())
        assert ("idle", 1, False) not in told
        news.note(told, [])
        told = news.take(())
        assert told[0] == ("idle", 1, False) and len(told) == MOST_AT_ONCE
        news.note(told, [("idle", 1)])
        assert {server for server, _, _ in news.take(())} == {f"busy{number}" for number in range(MOST_AT_ONCE)}
        watching.cancel()

    asyncio.run(story())


def test_a_change_wakes_the_host_at_once() -> None:
    async def story() -> None:
        driver: Any = Flipping()
        woken: list[bool] = []
        watching = asyncio.create_task(PowerNews(driver, driver, lambda: woken.append(True)).watch())
        await driver.switch(False)
        assert woken == [True], "the next heartbeat may be seconds away"
        watching.cancel()

    asyncio.run(story())


def test_a_driver_that_cannot_answer_is_asked_again_after_a_while() -> None:
    async def story() -> None:
        driver: Any = Flipping()
        news = PowerNews(driver, driver, lambda: None)
        watching = asyncio.create_task(news.watch())
        driver.fails = 1
        await driver.switch(False)
        assert (news.take(()), driver.slept) == ([], [AGAIN_SECONDS])
        await driver.switch(False)
        assert news.take(()) == [("s", 1, False)]
        watching.cancel()

    asyncio.run(story())


def test_a_server_with_a_step_under_way_waits_and_is_read_again_after_it() -> None:
    """The step may have changed the power itself."""

    async def story() -> None:
        driver: Any = Flipping()
        news = PowerNews(driver, driver, lambda: None)
        watching = asyncio.create_task(news.watch())
        await driver.switch(False, "busy")
        await driver.switch(False, "other")
        assert news.take(["busy"]) == [("other", 1, False)]
        driver.on, driver.fails = True, 1
        await news.read_again("busy")
        assert news.take(()) == [("busy", 1, False), ("other", 1, False)], "as it was, where it cannot be read"
        await news.read_again("busy")
        assert news.take(()) == [("busy", 1, True), ("other", 1, False)]
        watching.cancel()

    asyncio.run(story())


def test_a_host_that_registers_reports_no_change_twice() -> None:
    """Its registration says how all guests are, also where a heartbeat is under way."""

    async def story() -> None:
        driver: Any = Flipping()
        news = PowerNews(driver, driver, lambda: None)
        watching = asyncio.create_task(news.watch())
        await driver.switch(False)
        under_way = news.take(())
        news.clear()
        assert news.take(()) == []
        news.note(under_way, [])
        assert news.take(()) == []
        watching.cancel()

    asyncio.run(story())
