"""Attacks on a served socket without a token: each is refused or ended, and another client is answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from kilonova.api.addresses import LOOPBACK, group_of
from kilonova.api.connections import Connections
from kilonova.api.web import serve_web
from kilonova.settings import HttpOptions

pytestmark = pytest.mark.slow

SHORT = {"header_timeout": 0.3, "client_socket_timeout": 0.3}
PATIENT = {"header_timeout": 60.0, "client_socket_timeout": 60.0}
PATIENCE = 60.0  # of the tests; far more than any of the limits
BIG = 64 * 1024 * 1024


class Served:
    """A listener with a small application: POST reads its body, /large is a large answer, /early answers unread."""

    def __init__(self, port: int, connections: Connections) -> None:
        self.port, self.connections = port, connections
        self.gone = 0  # clients that left in the middle of a body
        self.release = asyncio.Event()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"] == "/slow":
            await self.release.wait()
        if scope["path"] == "/large":
            await StreamingResponse(self._large())(scope, receive, send)
            return
        try:
            body = b"" if scope["path"] == "/early" else await request.body()
        except ClientDisconnect:
            self.gone += 1
            return
        client = request.client.host if request.client else ""
        await PlainTextResponse(f"{len(body)} bytes from {client}")(scope, receive, send)

    async def _large(self) -> Any:
        for _ in range(BIG // 65536):
            yield b"x" * 65536

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, content: bytes) -> bytes:
        """What comes back until the server hangs up."""
        reader, writer = await self.connect()
        writer.write(content)
        return await until_end(reader)

    async def is_answering(self) -> None:
        answer = await self.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert status(answer) == 200, answer

    @property
    def number(self) -> int:
        return len(self.connections._open)


async def until_end(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    async with asyncio.timeout(PATIENCE):
        try:
            while piece := await reader.read(65536):
                pieces.append(piece)
        except ConnectionResetError:
            pass
    return b"".join(pieces)


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not look():  # noqa: ASYNC110 - what it waits for is another end of a socket
            await asyncio.sleep(0.01)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def serving(story: Callable[[Served], Awaitable[None]], exempt: tuple[str, ...] = LOOPBACK, **options: Any) -> None:
    async def whole() -> None:
        connections = Connections(HttpOptions(**(PATIENT | options)), exempt)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            served, stopping = Served(listener.getsockname()[1], connections), asyncio.Event()
            web = asyncio.create_task(serve_web(served.app, listener, stopping, connections))
            try:
                await story(served)
            finally:
                served.release.set()
                stopping.set()
                await web

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
ENDLESS = {
    "one header": (GET + b"X-A: ", b"a", 431),
    "a header's name": (GET, b"X", 431),
    "many headers": (GET, b"X-A: a\r\n", 431),
    "a url": (b"GET /", b"a", 414),
    "a query": (b"GET /?", b"a=b&", 414),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_heads_are_refused_before_they_fill_memory(kind: str) -> None:
    first, more, expected = ENDLESS[kind]

    async def story(it: Served) -> None:
        answer = await it.send(first + more * (128 * 1024 // len(more)))
        assert status(answer) == expected, answer
        await it.is_answering()
        await until(lambda: it.number == 0)

    serving(story)


def test_a_client_that_sends_on_after_it_was_refused_is_cut_off() -> None:
    async def story(it: Served) -> None:
        _, writer = await it.connect()
        writer.write(b"GET /")
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < BIG:
                writer.write(b"a" * 65536)
                await writer.drain()
                sent += 65536
        assert sent < BIG

    serving(story)


@pytest.mark.parametrize("size", [0, 1])
def test_limits_are_exact(size: int) -> None:
    """A whole head of exactly the limit passes, however it is cut; one byte more does not."""

    async def story(it: Served) -> None:
        value = 2000 - len("X-A") - 4 - len("Host" + "a") - 4 - len("Connection" + "close") - 4 + size
        url = b"/" + b"u" * 99
        head = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-A: %s\r\n\r\n" % (url, b"a" * value)
        assert status(await it.send(head)) == (431 if size else 200)
        assert status(await it.send(GET.replace(b"/ ", url + b"u" * size + b" ") + b"Connection: close\r\n\r\n")) == (
            414 if size else 200
        )

    serving(story, max_header_bytes=2000, max_url_bytes=100)


HALF_SENT = {
    "nothing": (b"", 0),
    "empty lines": (b"\r\n\r\n", 408),
    "half a line": (b"GET /", 408),
    "half a head": (GET + b"X-A: a\r\n", 408),
    "half a body": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", 408),
    "half a chunk": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", 408),
}


@pytest.mark.parametrize("kind", HALF_SENT)
def test_half_sent_requests_are_ended(kind: str) -> None:
    content, expected = HALF_SENT[kind]

    async def story(it: Served) -> None:
        held = []
        for _ in range(20):
            held.append(await it.connect())
            held[-1][1].write(content)
        await it.is_answering()
        for reader, _ in held:
            assert status(await until_end(reader)) == expected
        await until(lambda: it.number == 0)
        assert it.gone == (20 if "POST" in content.decode() else 0), "the application learns that its client is gone"
        await it.is_answering()

    serving(story, **SHORT)


def test_a_head_that_comes_byte_by_byte_has_one_deadline() -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        ended = asyncio.create_task(until_end(reader))
        writer.write(GET)
        while not ended.done():
            writer.write(b"X")  # slowloris: never quiet for long, never ready
            await asyncio.sleep(0.05)
        assert status(ended.result()) == 408

    serving(story, header_timeout=0.3)


def test_a_body_may_take_long_while_it_comes() -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 12\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(0.1)
            writer.write(b"b")
        assert (await until_end(reader)).endswith(b"12 bytes from 127.0.0.1")

    serving(story, header_timeout=0.3, client_socket_timeout=0.8)


def test_a_body_that_nobody_wants_any_more_ends_with_its_time() -> None:
    """The answer was sent early; the client goes on sending and would hold the connection as long as it likes."""

    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        ended = asyncio.create_task(until_end(reader))
        writer.write(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n")
        while not ended.done():
            writer.write(b"b")
            await asyncio.sleep(0.05)
        assert status(ended.result()) == 200

    serving(story, **SHORT)


def test_our_own_time_does_not_count() -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.8)
        it.release.set()
        assert status(await until_end(reader)) == 200

    serving(story, **SHORT)


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    """A request that came while the process was stopped is read and answered, not ended unread."""

    async def story(it: Served) -> None:
        held = [await it.connect() for _ in range(20)]
        await until(lambda: it.number == 20)
        for _, writer in held:
            writer.write(GET + b"Connection: close\r\n\r\n")
        time.sleep(3)  # noqa: ASYNC251 - all of the loop stands, as after SIGSTOP
        it.connections.end_overdue(asyncio.get_running_loop().time(), 0.1)  # the tick that comes before any reading
        for reader, _ in held:
            assert status(await until_end(reader)) == 200

    serving(story, header_timeout=1.0, client_socket_timeout=1.0)


def test_a_client_that_does_not_read_is_ended() -> None:
    async def story(it: Served) -> None:
        with socket.create_connection(("127.0.0.1", it.port)) as deaf:
            deaf.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            await until(lambda: it.number == 1)
            await until(lambda: it.number == 0)
        await it.is_answering()

    serving(story, **SHORT)


def test_connections_of_one_address_are_limited() -> None:
    async def story(it: Served) -> None:
        held = [await it.connect() for _ in range(5)]
        await until(lambda: it.number == 5)
        assert await it.send(GET + b"\r\n") == b"", "the sixth is closed at once"
        held[0][1].close()
        await until(lambda: it.number == 4)
        await it.is_answering()

    serving(story, exempt=(), max_connections_per_address=5)


@pytest.mark.parametrize("options", [{}, {"exempt": (), "trusted_proxies": ("127.0.0.0/8",)}])
def test_loopback_and_trusted_proxies_are_exempt(options: Any) -> None:
    async def story(it: Served) -> None:
        held = [await it.connect() for _ in range(5)]
        await until(lambda: it.number == 5)
        await it.is_answering()
        for _, writer in held:
            writer.close()

    serving(story, max_connections_per_address=2, **options)


def test_without_a_descriptor_left_the_one_that_asked_for_nothing_longest_goes() -> None:
    async def story(it: Served) -> None:
        it.connections._most = 3
        first = await it.connect()
        await until(lambda: it.number == 1)
        others = [await it.connect() for _ in range(2)]
        await until(lambda: it.number == 3)
        await it.is_answering()
        assert await until_end(first[0]) == b""
        assert not others[0][0].at_eof() and not others[1][0].at_eof()

    serving(story)


@pytest.mark.parametrize(("proxies", "seen"), [((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.7")])
def test_only_a_trusted_proxy_names_the_client(proxies: tuple[str, ...], seen: str) -> None:
    async def story(it: Served) -> None:
        named = b"X-Forwarded-For: 198.51.100.1, 203.0.113.7\r\nConnection: close\r\n\r\n"
        assert (await it.send(GET + named)).endswith(f"from {seen}".encode())

    serving(story, trusted_proxies=proxies)


def test_two_requests_on_one_connection_and_two_at_once() -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        for _ in range(3):
            writer.write(GET + b"\r\n")
            assert (await reader.readuntil(b"from 127.0.0.1")).startswith(b"HTTP/1.1 200")
        writer.write(GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")
        assert (await until_end(reader)).count(b"HTTP/1.1 200") == 2

    serving(story)


def test_a_client_that_asks_every_few_seconds_keeps_its_connection() -> None:
    """As `openstack … --wait` does; uvicorn's own limit is just its 5 seconds."""

    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        for seconds in (0.0, 5.5):
            await asyncio.sleep(seconds)
            writer.write(GET + b"\r\n")
            assert (await reader.readuntil(b"from 127.0.0.1")).startswith(b"HTTP/1.1 200")

    serving(story)


def test_addresses_count_by_what_one_client_can_have() -> None:
    assert group_of("203.0.113.7") == group_of("::ffff:203.0.113.7") == "203.0.113.7"
    assert group_of("2001:db8::1") == group_of("2001:db8::2") != group_of("2001:db8:0:1::1")
    assert group_of("not an address") == "not an address"
