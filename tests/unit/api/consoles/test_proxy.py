"""Consoles of a simulated cloud through its own socket: tokens, limits, and peers that mean no good."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.program import Cloud, Http, until

pytestmark = pytest.mark.slow

NEW = {"OpenStack-API-Version": "compute 2.37"}
TOKEN_SECONDS = 20
OPTIONS = {
    "consoleauth.token_ttl": TOKEN_SECONDS,
    "console.max_connections_per_server": 4,
    "wsgi.client_socket_timeout": 2,
}
PER_SERVER = 4


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    words = [word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")]
    with Cloud(tmp_path_factory.mktemp("consoles") / "data", "--hosts", "1", *words) as made:
        yield made


@pytest.fixture(scope="module")
def server(cloud: Cloud) -> str:
    return create(cloud.http, "watched")


def create(http: Http, name: str) -> str:
    image = http.ask("GET", "/image/v2/images").json["images"][0]["id"]
    wish = {"name": name, "imageRef": image, "flavorRef": "1", "networks": "none"}
    server = str(http.ask("POST", "/compute/v2.1/servers", {"server": wish}, NEW).json["server"]["id"])
    shown = f"/compute/v2.1/servers/{server}"
    until(lambda: http.ask("GET", shown).json["server"]["status"] == "ACTIVE", 30, f"{server} is active")
    return server


def url_of(http: Http, server: str) -> str:
    asked = {"remote_console": {"protocol": "serial", "type": "serial"}}
    return str(
        http.ask("POST", f"/compute/v2.1/servers/{server}/remote-consoles", asked, NEW).json["remote_console"]["url"]
    )


async def refused(url: str, **more: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as why:
        async with connect(url, **more):
            pass
    return why.value.response.status_code, bytes(why.value.response.body or b"").decode()


async def opened(url: str) -> ClientConnection:
    """Once there is room for it: what was closed before counts until its host has noticed."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await connect(url)
            except InvalidStatus as why:
                if why.response.status_code != 429:
                    raise
            await asyncio.sleep(0.05)


async def greeted(connection: ClientConnection) -> ClientConnection:
    await connection.send(b"\r")
    async with asyncio.timeout(20):
        while b"KILONOVA-GUEST" not in bytes(await connection.recv(decode=False)):
            pass
    return connection


def answers(http: Http) -> float:
    """Seconds that another client waits."""
    began = time.monotonic()
    assert http.ask("GET", "/compute/v2.1/servers").status == 200
    return time.monotonic() - began


def test_a_token_opens_one_console_for_a_while(cloud: Cloud, server: str) -> None:
    url = url_of(cloud.http, server)

    async def story() -> None:
        async with connect(url) as one, connect(url) as other:
            await greeted(one)
            await greeted(other)
            assert (await refused(url, origin="http://evil"))[0] == 403
            await asyncio.sleep(TOKEN_SECONDS)
            assert (await refused(url))[1].startswith("console token: it has expired")
            await greeted(one)  # a session that is open goes on

    asyncio.run(story())


def test_no_other_token_does(cloud: Cloud, server: str) -> None:
    url = url_of(cloud.http, server)
    base, _, token = url.partition("?token=")
    changed = token[:40] + ("A" if token[40] != "A" else "B") + token[41:]
    wrong = [base, f"{base}?token={changed}", f"{base}?token=", f"{base}?token={'x' * 5000}", f"{base}?token=%C3%A9"]
    wrong += [
        url.replace("/connect?", "/host?"),
        url.replace("/connect?", "/../connect?"),
        url.replace("/kilonova", "//x"),
    ]

    async def story() -> None:
        for one in wrong:
            assert (await refused(one))[0] == 403, one
        for more in ({"X-Kilonova-Console-Token": token}, {"X-Kilonova-Console-Token": ""}):
            assert (await refused(base.replace("/connect", "/host"), additional_headers=more))[0] == 403

    asyncio.run(story())
    assert token not in cloud.log()


def test_tokens_go_with_their_server(cloud: Cloud) -> None:
    server = create(cloud.http, "passing")
    url = url_of(cloud.http, server)

    async def story() -> None:
        async with connect(url) as one:
            await greeted(one)
            await asyncio.to_thread(cloud.http.ask, "DELETE", f"/compute/v2.1/servers/{server}")
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(20):
                    while True:
                        await one.recv()
        async with asyncio.timeout(20):
            while (answer := await refused(url))[0] != 403:  # noqa: ASYNC110 - the guest ends before its record
                await asyncio.sleep(0.05)
        assert "moved, rebuilt or deleted" in answer[1]

    asyncio.run(story())


def test_connections_are_counted(cloud: Cloud, server: str) -> None:
    async def story() -> None:
        url = url_of(cloud.http, server)
        open_ones = [await greeted(await opened(url)) for _ in range(PER_SERVER)]
        assert (await refused(url))[0] == 429
        await open_ones.pop().close()
        open_ones.append(await opened(url))
        for one in open_ones:
            await one.close()

    asyncio.run(story())


def test_large_and_many_frames(cloud: Cloud, server: str) -> None:
    async def story() -> None:
        url = url_of(cloud.http, server)
        async with connect(url) as one:
            with pytest.raises(ConnectionClosed) as why:
                await one.send(b"x" * 4 * 1024 * 1024)
                while True:
                    await one.recv()
            assert why.value.rcvd is None or why.value.rcvd.code == 1009
        async with connect(url) as one:
            await greeted(one)
            flooding = asyncio.create_task(flood(one))
            waits = [await asyncio.to_thread(answers, cloud.http) for _ in range(5)]
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
            one.transport.abort()
            assert max(waits) < 2.0, waits

    before = memory(cloud)
    asyncio.run(story())
    assert memory(cloud) - before < 64 * 1024, "KiB"


async def flood(connection: ClientConnection) -> None:
    while True:
        for _ in range(200):
            await connection.send(b"x")
        await asyncio.sleep(0)  # else the test itself does nothing else


def test_a_crowd_that_never_speaks_or_reads(cloud: Cloud, server: str) -> None:
    """200 connections with a wrong token, half a handshake, or no reading: they end, and others are answered."""

    async def story() -> None:
        url = url_of(cloud.http, server)
        path = url.partition(f":{port}")[2]
        head = (
            "GET {} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        )
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        writers = []
        for number in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            text = head.format(path if number % 2 else f"{path}x") + (key if number % 4 else "")
            writer.write(text.encode())
            writers.append(writer)
        waits = [await asyncio.to_thread(answers, cloud.http) for _ in range(5)]
        assert max(waits) < 2.0, waits
        for writer in writers:
            writer.close()
        await asyncio.sleep(0.2)
        assert (await refused(f"{url}x"))[0] == 403

    port = int(url_of(cloud.http, server).split(":")[2].split("/")[0])
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
    asyncio.run(story())


def test_whoever_does_not_read_is_cut_off(cloud: Cloud, server: str) -> None:
    """It asks for answers without end, by lines and by pings, and takes none."""

    async def story() -> None:
        url = url_of(cloud.http, server)
        before = memory(cloud)
        async with connect(url, max_queue=1) as one:
            one.transport.pause_reading()
            ends = time.monotonic() + 30
            while not one.transport.is_closing() and time.monotonic() < ends:
                try:
                    await asyncio.wait_for(one.send(b"\r" * 1000), 1)
                    one.protocol.send_ping(b"x" * 100)
                    one.transport.write(b"".join(one.protocol.data_to_send()))
                except (TimeoutError, ConnectionClosed):
                    one.transport.resume_reading()
                    break
            await asyncio.sleep(TOKEN_SECONDS)
            assert memory(cloud) - before < 64 * 1024, "KiB"
            assert await asyncio.to_thread(answers, cloud.http) < 2.0
            one.transport.abort()

    asyncio.run(story())


def memory(cloud: Cloud) -> int:
    """KiB that the cloud's process has in memory."""
    text = Path(f"/proc/{cloud.process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])
