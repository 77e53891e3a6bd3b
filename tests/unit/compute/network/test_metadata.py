"""The metadata service over a real connection, on loopback."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kilonova.compute.network.metadata import MetadataServer
from kilonova.domain.errors import NoAnswer

FILES = {"latest/meta-data/hostname": b"web", "openstack/latest/meta_data.json": b"{}"}


async def find(address):
    assert address == "127.0.0.1"
    return FILES


def ask(request, find=find):
    async def story():
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = MetadataServer(find)
        await server.start(listening)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(request.encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await server.stop()
        return answer.decode()

    return asyncio.run(story())


def status(request, find=find):
    return int(ask(request, find).split()[1])


def test_files_and_folders():
    answer = ask("GET /latest/meta-data/hostname HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n") and answer.endswith("\r\n\r\nweb")
    assert ask("GET /latest/meta-data/ HTTP/1.1\r\n\r\n").endswith("hostname")
    assert "Content-Length: 3" in ask("HEAD /latest/meta-data/hostname HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /nothing HTTP/1.1", 404),
        ("GET /../../etc/passwd HTTP/1.1", 404),
        ("PUT /latest/api/token HTTP/1.1", 405),
        ("nonsense", 400),
    ],
)
def test_what_is_refused(request_line, expected):
    assert status(f"{request_line}\r\n\r\n") == expected


def test_a_proxy_in_the_guest_gets_nothing():
    assert status("GET /latest/meta-data/hostname HTTP/1.1\r\nx-forwarded-FOR: 10.0.0.9\r\n\r\n") == 403


def test_nobody_at_that_address_and_no_conductor():
    async def nobody(address):
        return None

    async def silence(address):
        raise NoAnswer("no conductor")

    assert status("GET / HTTP/1.1\r\n\r\n", nobody) == 404
    assert status("GET / HTTP/1.1\r\n\r\n", silence) == 503


def test_a_guest_with_many_open_connections_does_not_silence_others():
    request = b"GET /latest/meta-data/hostname HTTP/1.1\r\n\r\n"

    async def connect(port, address):
        return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))

    async def answer(port, address):
        reader, writer = await connect(port, address)
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def story():
        async def anybody(address):
            return FILES

        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        server, port = MetadataServer(anybody), listening.getsockname()[1]
        await server.start(listening)
        idle = [await connect(port, "127.0.0.2") for _ in range(400)]
        answers = [await answer(port, address) for address in ("127.0.0.2", "127.0.0.3")]
        for _, writer in idle:
            writer.close()
        await server.stop()
        return answers

    refused, answered = asyncio.run(story())
    assert refused == b"" and answered.endswith(b"web")


def test_a_request_without_end_is_cut_off():
    assert ask("GET /" + "x" * 40000) == ""
