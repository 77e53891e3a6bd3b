"""Only NATS: the broker dies and returns, refuses us, or was never there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from kilonova.bus import host_subject
from kilonova.bus.nats import NatsBus
from kilonova.domain.errors import KilonovaError, NoAnswer
from tests.bus.conftest import nats_site
from tests.bus.test_bus import echo, noting
from tests.support.servers import Nats, free_port

pytestmark = pytest.mark.nats


class GuardedNats(Nats):
    """Asks for a password."""

    password = "right"

    def _command(self) -> list[str]:
        return [*super()._command(), "--user", "agent", "--pass", self.password]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.bus.nats.CONNECT_SECONDS", 0.7)


@pytest.fixture
def guarded(nats: Nats) -> Iterator[GuardedNats]:
    with GuardedNats() as server:
        yield server


async def until(condition: Callable[[], bool], seconds: float = 8.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the library has no event for this
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("end", [Nats.kill9, Nats.stop])
def test_all_goes_on_when_the_broker_is_back(
    nats: Nats, end: Callable[[Nats], None], caplog: pytest.LogCaptureFixture
) -> None:
    site = nats_site(nats.url)

    async def body(_: object) -> None:
        heard: list[str] = []
        asker, server = await site.end("asker"), await site.end("server")
        await server.serve(host_subject("c.1"), echo)
        await server.serve("wake", noting("server", heard), shared=True)
        assert await asker.call(host_subject("c.1"), b"before") == b"before"

        end(nats)
        try:
            await until(lambda: not asker.is_connected() and not server.is_connected())
            began = time.monotonic()
            with pytest.raises(NoAnswer, match=r"within 0\.3 s; there is no connection to nats://127"):
                await asker.call(host_subject("c.1"), b"meanwhile", timeout=0.3)
            assert time.monotonic() - began < 1
            await asker.cast("wake", b"lost")
            waiting = asyncio.create_task(asker.call(host_subject("c.1"), b"patient", timeout=10))
        finally:
            nats.start()
        await until(lambda: asker.is_connected() and server.is_connected())
        with_luck = await asyncio.gather(waiting, return_exceptions=True)  # the server may be back after the asker
        assert with_luck == [b"patient"] or isinstance(with_luck[0], NoAnswer)
        assert await asker.call(host_subject("c.1"), b"after", timeout=5) == b"after"
        await asker.cast("wake", b"again")
        await until(lambda: bool(heard))
        assert heard == ["server:again"]

    with caplog.at_level(logging.WARNING):
        site.run(body)
    assert len(caplog.records) == 4, caplog.text  # each end says once that it lost the broker, and once that it is back


def test_a_question_in_flight_when_the_broker_dies_is_not_answered(nats: Nats) -> None:
    site = nats_site(nats.url)

    async def body(_: object) -> None:
        asker, server = await site.end("asker"), await site.end("server")

        async def slow(body: bytes) -> bytes:
            await asyncio.sleep(30)
            return b""

        await server.serve("slow", slow)
        question = asyncio.create_task(asker.call("slow", b"", timeout=0.5))
        await asyncio.sleep(0.1)
        nats.kill9()
        try:
            with pytest.raises(NoAnswer):
                await question
        finally:
            nats.start()

    site.run(body)


def test_what_is_served_while_the_broker_is_away_is_served_afterwards(nats: Nats) -> None:
    site = nats_site(nats.url)

    async def body(_: object) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        nats.kill9()
        try:
            await until(lambda: not server.is_connected())
            await server.serve("echo", echo)
        finally:
            nats.start()
        await until(lambda: asker.is_connected() and server.is_connected())
        assert await asker.call("echo", b"x", timeout=5) == b"x"

    site.run(body)


async def _once_subscribed(asker: NatsBus) -> bytes:
    """Connected again, the other end may still have to say what it serves."""
    for _ in range(50):
        try:
            return await asker.call("echo", b"x", timeout=5)
        except NoAnswer:
            await asyncio.sleep(0.1)
    raise AssertionError("nobody serves echo any more")


def test_a_broker_that_refuses_us_for_a_while_is_asked_again(
    guarded: GuardedNats, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in the broker's configuration must not need a restart of ten thousand agents."""

    async def body() -> None:
        asker = NatsBus(guarded.url, "asker", user="agent", password="right")
        server = NatsBus(guarded.url, "server", user="agent", password="right")
        try:
            await asker.start()
            await server.start()
            await server.serve("echo", echo)
            guarded.kill9()
            guarded.password = "wrong"
            guarded.start()
            await asyncio.sleep(0.8)
            assert not asker.is_connected()
            guarded.kill9()
            guarded.password = "right"
            guarded.start()
            await until(lambda: asker.is_connected() and server.is_connected())
            assert await _once_subscribed(asker) == b"x"
        finally:
            await asker.close()
            await server.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    assert caplog.text.count("Authorization Violation") == 2, caplog.text  # each end says it once, not at each attempt


def test_a_connection_given_up_by_the_library_is_made_anew(nats: Nats) -> None:
    site = nats_site(nats.url)

    async def body(_: object) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        await server.serve("echo", echo)
        await server._client._process_err("'Maximum Connections Exceeded'")  # nats-py closes for good
        await until(lambda: not server.is_connected())
        await until(server.is_connected)
        assert await asker.call("echo", b"x", timeout=5) == b"x"

    site.run(body)


@pytest.mark.usefixtures("impatient")
def test_no_first_connection_is_a_clear_sentence() -> None:
    port = free_port()

    async def body() -> None:
        began = time.monotonic()
        bus = NatsBus(f"nats://agent:secret@127.0.0.1:{port}", "asker")
        with pytest.raises(KilonovaError, match=f"cannot connect to NATS at nats://127.0.0.1:{port} within") as told:
            await bus.start()
        assert "secret" not in str(told.value)
        assert time.monotonic() - began < 3
        assert not bus.is_connected()
        await bus.close()

    asyncio.run(body())


@pytest.mark.usefixtures("impatient")
def test_a_wrong_password_is_a_clear_sentence(guarded: GuardedNats) -> None:
    async def body() -> None:
        bus = NatsBus(guarded.url, "asker", user="agent", password="wrong")
        with pytest.raises(KilonovaError, match=r"Authorization Violation"):
            await bus.start()

    asyncio.run(body())
