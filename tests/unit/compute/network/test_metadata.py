"""The metadata service over a real connection, on loopback."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kilonova.compute.network import metadata
from kilonova.compute.network.metadata import MetadataServer
from kilonova.domain.errors import Failed, NoAnswer

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


def test_the_head_of_an_answer_says_what_follows():
    whole = ask("GET /latest/meta-data/hostname HTTP/1.1\r\n\r\n")
    head = ask("HEAD /latest/meta-data/hostname HTTP/1.1\r\n\r\n")
    assert head + "web" == whole and "Content-Type: text/plain; charset=utf-8" in head
    document = ask("GET /openstack/latest/meta_data.json HTTP/1.1\r\n\r\n")
    assert "Content-Type: application/json" in document and document.endswith("{}")
    assert ask("GET /latest/meta%2Ddata/hostname?x=y HTTP/1.1\r\n\r\n").endswith("web")
    assert "Connection: close" in head


def test_a_fault_of_ours_ends_the_connection_and_is_logged(caplog):
    async def fails(address):
        raise ValueError("a mistake")

    assert ask("GET / HTTP/1.1\r\n\r\n", fails) == ""
    assert "metadata request failed" in caplog.text and "a mistake" in caplog.text


def test_why_there_is_no_metadata_is_logged(caplog):
    async def unregistered(address):
        raise Failed("not_registered", "the agent has not started yet")

    assert status("GET / HTTP/1.1\r\n\r\n", unregistered) == 503
    assert "metadata for 127.0.0.1 is not available" in caplog.text and "has not started yet" in caplog.text


@pytest.mark.parametrize(("most_of_one", "most", "idle", "is_answered"), [
    (3, 9, 2, True), (3, 9, 3, False), (9, 3, 2, True), (9, 3, 3, False)])  # fmt: skip
def test_connections_of_one_guest_and_of_all_are_limited(monkeypatch, most_of_one, most, idle, is_answered):
    """One that has ended does not count."""
    monkeypatch.setattr(metadata, "MOST_OF_ONE", most_of_one)
    monkeypatch.setattr(metadata, "MOST_CONNECTIONS", most)

    async def story():
        listening = socket.create_server(("127.0.0.1", 0))
        server, port = MetadataServer(find), listening.getsockname()
        await server.start(listening)

        async def answer():
            reader, writer = await asyncio.open_connection(*port)
            writer.write(b"GET /latest/meta-data/hostname HTTP/1.1\r\n\r\n")
            try:
                return await asyncio.wait_for(reader.read(), 10)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        for _ in range(5):
            assert (await answer()).endswith(b"web")
        waiting = [await asyncio.open_connection(*port) for _ in range(idle)]
        for _ in range(3):
            assert (await answer()).endswith(b"web") is is_answered
        for _, writer in waiting:
            writer.close()
        await server.stop()
        with pytest.raises(OSError):
            await asyncio.open_connection(*port)

    asyncio.run(story())


def test_a_server_that_did_not_start_can_be_stopped():
    asyncio.run(MetadataServer(find).stop())
