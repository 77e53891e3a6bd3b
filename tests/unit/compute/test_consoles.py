"""Consoles that an API asks a host to open: what it refuses, how many it opens, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.compute import consoles
from kilonova.compute.consoles import Consoles
from kilonova.domain.console import SERIAL, VNC
from kilonova.domain.errors import Failed
from kilonova.domain.messages import ConsoleOpen


class Stream:
    """`ByteStream` of a guest that writes nothing."""

    def __init__(self) -> None:
        self.is_closed = False

    async def read(self) -> bytes:
        await asyncio.sleep(1e6)
        return b""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        self.is_closed = True


class Driver:
    """Guests with both kinds of consoles; `wrong` is what opening one raises."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = (VNC, SERIAL)
        self.opened: list[tuple[str, int, str]] = []
        self.streams: list[Stream] = []
        self.wrong: Exception | None = None
        self.hangs = False

    async def consoles(self, server: str, copy: int) -> tuple[str, ...]:
        if server == "gone":
            raise Failed("no_guest", "it is not here")
        return self.kinds

    async def open_console(self, server: str, copy: int, kind: str) -> Stream:
        self.opened.append((server, copy, kind))
        if self.hangs:
            await asyncio.sleep(1e6)
        if self.wrong is not None:
            raise self.wrong
        self.streams.append(Stream())
        return self.streams[-1]


class Door:
    """Holds each connection until the test ends it, by its token."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Future[None]] = {}
        self.urls: list[str] = []

    async def carry(self, url: str, token: str, stream: Stream) -> None:
        self.urls.append(url)
        self.open[token] = asyncio.get_running_loop().create_future()
        try:
            await self.open[token]
        finally:
            del self.open[token]


Story = Callable[[Consoles, Driver, Door], Awaitable[None]]


def play(story: Story) -> None:
    async def whole() -> None:
        driver, door = Driver(), Door()
        made = Consoles(driver, door)  # type: ignore[arg-type]
        await story(made, driver, door)
        await made.stop()

    asyncio.run(whole())


async def ask(made: Consoles, server: str = "s1", kind: str = VNC, token: str = "t", copy: int = 1) -> str:
    answer = await made.answer(ConsoleOpen(server, copy, kind, "http://api", token))
    await settle()
    return answer.problem


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_without_a_token_it_says_only_whether_it_could() -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        assert await ask(made, token="") == ""
        assert (driver.opened, door.open) == ([], {})

    play(story)


def test_with_a_token_it_connects_to_the_api_that_asks() -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        assert await ask(made, copy=3) == ""
        assert (driver.opened, [*door.open], door.urls) == ([("s1", 3, VNC)], ["t"], ["http://api"])

    play(story)


@pytest.mark.parametrize("token", ["", "t"])
@pytest.mark.parametrize(
    ("server", "kind", "kinds", "problem"),
    [
        ("gone", VNC, (VNC,), "no_guest"),
        ("s1", VNC, (SERIAL,), "console_unavailable"),
        ("s1", SERIAL, (VNC,), "console_unavailable"),
        ("s1", "spice", (VNC, "spice"), "console_unavailable"),
    ],
)
def test_what_cannot_be_opened(token: str, server: str, kind: str, kinds: tuple[str, ...], problem: str) -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        driver.kinds = kinds
        assert await ask(made, server, kind, token) == problem
        assert (driver.opened, door.open) == ([], {})

    play(story)


def test_a_host_that_reaches_no_api_has_no_consoles() -> None:
    async def story() -> None:
        made = Consoles(Driver(), None)  # type: ignore[arg-type]
        assert await ask(made, token="") == await ask(made) == "console_unavailable"

    asyncio.run(story())


@pytest.mark.parametrize("wrong", [OSError("no such socket"), TimeoutError(), None], ids=["broken", "late", "hangs"])
@pytest.mark.parametrize("kind", [VNC, SERIAL])
def test_a_console_that_does_not_open_is_unavailable_and_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, wrong: Exception | None, kind: str
) -> None:
    monkeypatch.setattr(consoles, "OPEN_SECONDS", 0.01)
    monkeypatch.setattr(consoles, "PER_HOST", 1)

    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        driver.wrong, driver.hangs = wrong, wrong is None
        assert await ask(made, kind=kind) == "console_unavailable"
        driver.wrong, driver.hangs = None, False
        assert await ask(made, kind=kind) == ""

    play(story)


def test_an_error_that_is_no_answer_goes_to_the_api() -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        driver.wrong = Failed("driver_error", "libvirt is away")
        with pytest.raises(Failed, match="libvirt is away"):
            await ask(made)

    play(story)


def test_connections_are_limited_by_server_and_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the host a connection, whatever an API asks of it."""
    monkeypatch.setattr(consoles, "PER_SERVER", 2)
    monkeypatch.setattr(consoles, "PER_HOST", 3)

    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        assert [await ask(made, "s1", token=one) for one in "abc"] == ["", "", "too_many_consoles"]
        assert [await ask(made, "s2", token=one) for one in "de"] == ["", "too_many_consoles"]
        door.open["a"].set_result(None)
        await settle()
        assert [await ask(made, "s1", token=one) for one in "fg"] == ["", "too_many_consoles"]
        for one in "bf":
            door.open[one].set_result(None)
        await settle()
        assert [await ask(made, "s3", token=one) for one in "hij"] == ["", "", "too_many_consoles"]
        assert len(door.open) == 3 and len([one for one in driver.streams if not one.is_closed]) == 3
        assert len(made._tasks) == 3, "nothing is kept of those that have ended"

    play(story)


def test_users_share_a_serial_line_and_have_a_screen_each() -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        for token, kind in (("a", SERIAL), ("b", SERIAL), ("c", VNC), ("d", VNC)):
            assert await ask(made, kind=kind, token=token) == ""
        assert driver.opened == [("s1", 1, SERIAL), ("s1", 1, VNC), ("s1", 1, VNC)]

    play(story)


def test_a_console_that_cannot_be_connected_is_closed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        async def away(*_: Any) -> None:
            raise Failed("api_away", "no connection to http://api")

        door.carry = away  # type: ignore[method-assign]
        assert await ask(made) == ""
        assert driver.streams[0].is_closed

    with caplog.at_level(logging.WARNING, "kilonova.compute.consoles"):
        play(story)
    text = "console not connected: server=s1 type=vnc: no connection to http://api"
    assert [one.getMessage() for one in caplog.records] == [text]


def test_when_it_stops_every_connection_has_ended() -> None:
    async def story(made: Consoles, driver: Driver, door: Door) -> None:
        await ask(made, token="a")
        await ask(made, token="b", kind=SERIAL)
        await made.stop()
        assert door.open == {} and all(one.is_closed for one in driver.streams)

    play(story)
