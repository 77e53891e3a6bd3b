"""How an agent connects to the API for a console: encrypted exactly where the API is."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from websockets.asyncio.server import ServerConnection

from kilonova.compute import console_door
from kilonova.compute.console_door import MOST, WebSocketDoor
from kilonova.domain.console import HOST_PATH, PIECE, TOKEN_HEADER
from kilonova.domain.errors import Failed


@pytest.mark.parametrize(("scheme", "socket_scheme"), [("http", "ws"), ("https", "wss")])
def test_the_connection_is_encrypted_where_the_api_is(
    monkeypatch: pytest.MonkeyPatch, scheme: str, socket_scheme: str
) -> None:
    asked: dict[str, Any] = {}

    async def connect(url: str, **options: Any) -> None:
        asked.update(options, url=url)
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr(console_door, "connect", connect)
    with pytest.raises(Failed) as why:
        asyncio.run(WebSocketDoor().carry(f"{scheme}://cloud:8774/", "token-1", None))  # type: ignore[arg-type]
    assert why.value.code == "api_away"
    assert asked["url"].startswith(f"{socket_scheme}://cloud:8774/")
    assert isinstance(asked["ssl"], ssl.SSLContext) is (scheme == "https")
    assert asked["additional_headers"] == {TOKEN_HEADER: "token-1"}


class Pipe:
    """`ByteStream` of a guest: what it writes, and what it was sent."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_closed = False

    async def read(self) -> bytes:
        return await self.output.get()

    async def write(self, data: bytes) -> None:
        self.heard.put_nowait(data)

    async def close(self) -> None:
        self.is_closed = True


async def carried(serve: Callable[[ServerConnection], Awaitable[None]], guest: Pipe, path: str = "/base/") -> None:
    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0, max_size=MOST) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.wait_for(WebSocketDoor().carry(f"http://127.0.0.1:{port}{path}", "token-1", guest), 10)


def test_bytes_go_both_ways_in_messages_that_the_api_takes() -> None:
    async def story() -> None:
        guest, asked = Pipe(), list[tuple[str, str | None]]()
        guest.output.put_nowait(b"x" * (2 * PIECE + 1))
        lengths, heard = list[int](), list[bytes]()

        async def serve(api: ServerConnection) -> None:
            assert api.request is not None
            asked.append((api.request.path, api.request.headers.get(TOKEN_HEADER)))
            lengths.extend([len(await api.recv()) for _ in range(3)])
            for message in (b"typed", b"", "as text"):
                await api.send(message)
            heard.extend([await guest.heard.get() for _ in range(2)])

        await carried(serve, guest)
        assert asked == [(f"/base{HOST_PATH}", "token-1")]
        assert lengths == [PIECE, PIECE, 1]
        assert heard == [b"typed", b"as text"], "an empty message is not the end"
        assert guest.is_closed, "the API has closed the connection"

    asyncio.run(story())


def test_the_connection_ends_with_the_guest() -> None:
    async def story() -> None:
        guest, codes = Pipe(), list[int | None]()
        guest.output.put_nowait(b"")

        async def serve(api: ServerConnection) -> None:
            await api.wait_closed()
            codes.append(api.close_code)

        await carried(serve, guest, "")
        assert codes == [1000] and guest.is_closed, "the host has closed it, not the API that ends"

    asyncio.run(story())


def test_what_a_guest_writes_after_the_api_has_closed_is_lost() -> None:
    async def story() -> None:
        closed = asyncio.Event()

        async def serve(api: ServerConnection) -> None:
            await api.close()
            closed.set()

        async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            stream = console_door._ClientStream(await websockets.asyncio.client.connect(url, proxy=None))
            await closed.wait()
            assert await stream.read() == b""
            with pytest.raises(ConnectionResetError):
                await stream.write(b"more")

    asyncio.run(story())


def test_an_api_that_does_not_speak_so_is_away() -> None:
    async def story() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Failed, match=f"no connection to http://127.0.0.1:{port}"):
                await WebSocketDoor().carry(f"http://127.0.0.1:{port}", "token-1", Pipe())

    asyncio.run(story())


def test_a_host_trusts_the_authority_that_its_operator_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted: list[str | None] = []
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: trusted.append(cafile))
    monkeypatch.setattr(console_door, "connect", _refuse)
    for ca_file in ("", "/etc/ca.pem"):
        with pytest.raises(Failed):
            asyncio.run(WebSocketDoor(ca_file).carry("https://cloud", "token-1", Pipe()))
    assert trusted == [None, "/etc/ca.pem"]


async def _refuse(url: str, **_: Any) -> None:
    raise ConnectionRefusedError("nobody is there")
