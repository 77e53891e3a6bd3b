"""Consoles of a real guest through the API: its serial line in both directions, and its screen by RFB."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.guests.daemon import Libvirt
from tests.guests.test_cloud import act, boots, console, create, delete, domain_of, serve, upload
from tests.guests.test_cloud import data as data
from tests.support.program import Http, until

NEW = {"OpenStack-API-Version": "compute 2.6"}
OLD = {"OpenStack-API-Version": "compute 2.5"}


@pytest.fixture(scope="module")
def guest(libvirt: Libvirt, data: Path) -> Iterator[tuple[Http, str]]:
    with serve(libvirt, data) as cloud:
        server = create(cloud.http, upload(cloud.http))
        until(lambda: console(cloud.http, server) == boots(1), 30, lambda: console(cloud.http, server))
        yield cloud.http, server
        delete(cloud.http, libvirt, server)


def url_of(http: Http, server: str, protocol: str, kind: str) -> str:
    body = {"remote_console": {"protocol": protocol, "type": kind}}
    made = http.ask("POST", f"/compute/v2.1/servers/{server}/remote-consoles", body, NEW)
    assert made.status == 200, made.body
    return str(made.json["remote_console"]["url"])


def socket_of(page: str) -> str:
    """What noVNC connects to."""
    address = urlsplit(page)
    return f"ws://{address.netloc}/{parse_qs(address.query)['path'][0]}"


async def received(connection: ClientConnection, text: bytes) -> bytes:
    got = b""
    async with asyncio.timeout(20):
        while text not in got:
            got += bytes(await connection.recv(decode=False))
    return got


async def ended(connection: ClientConnection) -> None:
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(20):
            while True:
                await connection.recv()


async def refused(url: str) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as why:
        async with connect(url):
            pass
    return why.value.response.status_code, bytes(why.value.response.body or b"").decode()


async def see_screen(url: str) -> tuple[int, int, bytes]:
    """Width, height and the pixels of the whole screen (RFC 6143)."""
    async with connect(url, subprotocols=["binary"], max_size=None) as connection:  # type: ignore[list-item]
        stream = _Bytes(connection)
        assert connection.subprotocol == "binary"
        assert await stream.take(12) == b"RFB 003.008\n"
        await connection.send(b"RFB 003.008\n")
        assert await stream.take((await stream.take(1))[0]) == b"\x01", "no authentication: the token was it"
        await connection.send(b"\x01")
        assert await stream.take(4) == b"\0\0\0\0"
        await connection.send(b"\x01")  # shared
        width, height, pixel, name = struct.unpack(">HHB15xI", await stream.take(24))
        assert pixel == 32 and await stream.take(name)
        await connection.send(struct.pack(">BxHi", 2, 1, 0))  # raw pixels only
        await connection.send(struct.pack(">BBHHHH", 3, 0, 0, 0, width, height))
        kind, number = struct.unpack(">BxH", await stream.take(4))
        assert kind == 0
        pixels = b""
        for _ in range(number):
            _, _, wide, high, encoding = struct.unpack(">HHHHi", await stream.take(12))
            assert encoding == 0
            pixels += await stream.take(wide * high * 4)
        return width, height, pixels


class _Bytes:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._waiting = connection, b""

    async def take(self, number: int) -> bytes:
        async with asyncio.timeout(30):
            while len(self._waiting) < number:
                self._waiting += bytes(await self._connection.recv(decode=False))
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken


def test_the_pointer_of_the_screen_is_absolute(libvirt: Libvirt, guest: tuple[Http, str]) -> None:
    """Once its driver is loaded; this guest has none."""
    command = ("qemu-monitor-command", "--hmp", domain_of(libvirt, guest[1]), "info mice")
    assert "QEMU Virtio Tablet (absolute)" in " ".join(libvirt.virsh(*command))


def test_the_serial_line_is_spoken_to_and_logged(guest: tuple[Http, str]) -> None:
    http, server = guest
    url = url_of(http, server, "serial", "serial")

    async def speak() -> None:
        async with connect(url) as one, connect(url) as other:
            await one.send(b"from one;")
            await received(one, b"from one;")
            await received(other, b"from one;")
            await other.send("from the other;")
            await received(one, b"from the other;")

    asyncio.run(speak())
    until(lambda: console(http, server) == boots(1) + "from one;from the other;", 10, lambda: console(http, server))
    old = {"os-getSerialConsole": {"type": "serial"}}
    assert (
        http.ask("POST", f"/compute/v2.1/servers/{server}/action", old, OLD).json["console"]["url"].startswith("ws://")
    )


def test_the_screen_is_seen(guest: tuple[Http, str], libvirt: Libvirt) -> None:
    http, server = guest
    page = url_of(http, server, "vnc", "novnc")
    assert re.match(r"http://[^/]+/kilonova/consoles/novnc/vnc_lite\.html\?path=", page)
    width, height, pixels = asyncio.run(see_screen(socket_of(page)))
    assert width * height * 4 == len(pixels)
    assert len({pixels[at : at + 4] for at in range(0, len(pixels), 4)}) > 1, "the BIOS has written something"
    domain = next(name for name in libvirt.virsh("list", "--name") if server in name)
    assert libvirt.virsh("vncdisplay", domain) == [], "QEMU listens nowhere"


def test_connections_and_tokens_end_with_the_copy(guest: tuple[Http, str]) -> None:
    http, server = guest
    serial, screen = url_of(http, server, "serial", "serial"), socket_of(url_of(http, server, "vnc", "novnc"))

    async def stop() -> None:
        async with connect(serial) as one, connect(screen) as other:
            await received(other, b"RFB")
            await asyncio.to_thread(act, http, server, {"os-stop": None}, "SHUTOFF")
            await asyncio.gather(ended(one), ended(other))
        assert (await refused(serial))[0] == 409

    asyncio.run(stop())
    asked: dict[str, Any] = {"remote_console": {"protocol": "serial", "type": "serial"}}
    path = f"/compute/v2.1/servers/{server}/remote-consoles"
    assert http.ask("POST", path, asked, NEW).status == 409
    act(http, server, {"os-start": None}, "ACTIVE")

    async def again() -> None:
        async with connect(serial) as one:
            await one.send(b"again;")
            await received(one, b"again;")

    asyncio.run(again())
    image = http.ask("GET", f"/compute/v2.1/servers/{server}").json["server"]["image"]["id"]
    act(http, server, {"rebuild": {"imageRef": image}}, "ACTIVE")
    for url in (serial, screen):
        status, text = asyncio.run(refused(url))
        assert status == 403 and "moved, rebuilt or deleted" in text
