"""Consoles in a fleet: the agent of the guest's host connects to the API that a user has come to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fleet.fleet import Fleet
from tests.support.program import Http, Role
from tests.support.servers import free_port

NEW = {"OpenStack-API-Version": "compute 2.6"}
ASKED = {"remote_console": {"protocol": "serial", "type": "serial"}}


def url_of(http: Http, server: str) -> str:
    made = http.ask("POST", f"/compute/v2.1/servers/{server}/remote-consoles", ASKED, NEW)
    assert made.status == 200, made.body
    return str(made.json["remote_console"]["url"])


def trusting(url: str) -> connect:
    trust = ssl._create_unverified_context() if url.startswith("wss") else None
    return connect(url, ssl=trust)


async def received(connection: ClientConnection, text: bytes) -> None:
    got = b""
    async with asyncio.timeout(20):
        while text not in got:
            got += bytes(await connection.recv(decode=False))


def test_a_console_of_a_host_elsewhere(fleet: Fleet) -> None:
    server = fleet.created()
    url = url_of(fleet.http, server)

    async def speak() -> None:
        async with trusting(url) as one, trusting(url) as other:
            await received(one, b"KILONOVA-GUEST")
            await one.send(b"hello\r")
            await received(other, b"hello\r\r\nKILONOVA-GUEST")

    asyncio.run(speak())


def test_the_host_dies(fleet: Fleet) -> None:
    server = fleet.created()
    url, host = url_of(fleet.http, server), fleet.http.server(server)["host"]

    async def watch() -> None:
        async with trusting(url) as one:
            await received(one, b"KILONOVA-GUEST")
            fleet.kill9(host)
            with pytest.raises(ConnectionClosed):
                await received(one, b"nothing")
        with pytest.raises(InvalidStatus) as why:
            async with trusting(url):
                pass
        assert why.value.response.status_code == 503

    asyncio.run(watch())
    assert fleet.http.ask("POST", f"/compute/v2.1/servers/{server}/remote-consoles", ASKED, NEW).status == 409
    fleet.start(host)
    fleet.await_state(host, "up")


@pytest.fixture
def second(fleet: Fleet) -> Iterator[Http]:
    """Another api behind the same public URL. Hosts reach each api by an address of its own, as the guide says."""
    port = free_port()
    own = f"https://{fleet.address}:{port}"
    common = ("--config", fleet.config, "--data", fleet.directory / "api2", "--public-url", fleet.http.url)
    shared = ("--set", f"image.filesystem_store_datadir={fleet.directory / 'api' / 'images'}")
    with Role("api", "--listen", f"{fleet.address}:{port}", *common, *shared, "--set", f"console.host_url={own}"):
        yield Http(own, fleet.http.token, ca_file=fleet.directory / "keys" / "tls.crt")


def test_either_api_opens_what_the_other_gave_out(fleet: Fleet, second: Http) -> None:
    """A balancer may send a browser to any of them: the token says all, and the host connects to the api that asks."""
    server = fleet.created()
    given = [url_of(fleet.http, server), url_of(second, server)]
    addresses = [urlsplit(http.url).netloc for http in (fleet.http, second)]
    assert [urlsplit(url).netloc for url in given] == [addresses[0]] * 2, "users know the public URL alone"

    async def speak(url: str, text: bytes) -> None:
        async with trusting(url) as one:
            await received(one, b"KILONOVA-GUEST")
            await one.send(text + b"\r")
            await received(one, text + b"\r\r\nKILONOVA-GUEST")

    for number, url in enumerate(given):
        for address in addresses:
            asyncio.run(speak(urlsplit(url)._replace(netloc=address).geturl(), b"%d" % number))
    fleet.roles.pop("api").terminate()
    asyncio.run(speak(urlsplit(given[0])._replace(netloc=addresses[1]).geturl(), b"alone"))
    fleet.start("api")
