"""DHCP and metadata of the networks of a host, on sockets that need no namespace."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import msgspec
import pytest

from kilonova.compute.network import services, sockets
from kilonova.compute.network.dhcp import DISCOVER, RELEASE
from kilonova.compute.network.layout import HostNetworkOptions, Plugged, service_mac
from kilonova.compute.network.names import service_namespace
from kilonova.compute.network.services import NetworkService, NetworkServices
from tests.unit.compute.network.test_dhcp import PORT, frame

OPTIONS = HostNetworkOptions("host1")
OTHER = msgspec.structs.replace(PORT, port_id="q", network_id="m", mac="fa:16:3e:00:00:06")
FILES = {"latest/meta-data/hostname": b"web"}


def plugged(*ports):
    return [Plugged(f"server-{port.port_id}", 1, port) for port in ports]


class Opened:
    """The sockets of each namespace: what guests of the network send and get, and where the metadata listens."""

    def __init__(self):
        self.guests, self.http, self.every, self.entered = {}, {}, [], []

    def within(self, name, make):
        guests, frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        silent, listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.create_server(("127.0.0.1", 0))
        for one in (guests, frames, listening):
            one.setblocking(False)
        self.guests[name], self.http[name] = guests, listening.getsockname()
        self.entered.append(name)
        self.every += [frames, silent, listening]
        return [frames, silent, listening]


@pytest.fixture
def opened(monkeypatch):
    found = Opened()
    monkeypatch.setattr(sockets, "within", found.within)
    yield found
    for one in (*found.every, *found.guests.values()):
        one.close()


async def describe(one):
    return FILES if one.server == "server-p" else None


def namespace(network):
    return service_namespace("host1", network)


async def answers(guests, *frames):
    """What a guest hears after these frames, once the service had its turn."""
    for one in frames:
        guests.send(one)
    for _ in range(3):
        await asyncio.sleep(0)
    heard = []
    with contextlib.suppress(BlockingIOError):
        while True:
            heard.append(guests.recv(2048))
    return heard


def play(story):
    async def whole():
        running = NetworkServices(describe)
        try:
            await story(running)
        finally:
            await running.stop()

    asyncio.run(whole())


def test_known_guests_are_answered_and_nobody_else(opened, caplog):
    async def story(running):
        await running.update(OPTIONS, plugged(PORT), set())
        guests = opened.guests[namespace("n")]
        (reply,) = await answers(guests, frame(DISCOVER))
        assert reply[6:12].hex(":") == service_mac("host1", "n")
        stranger = frame(DISCOVER, source=OTHER.mac, hardware=OTHER.mac)
        assert await answers(guests, stranger, b"nonsense", frame(RELEASE)) == []
        assert len(await answers(guests, *[frame(DISCOVER)] * 3)) == 3

    play(story)
    assert not caplog.records, "nothing went wrong in the loop"


def test_the_mtu_that_fits_into_the_tunnel_is_told(opened):
    async def story(running):
        large = msgspec.structs.replace(PORT, mtu=9000, network_type="vxlan")
        await running.update(OPTIONS, plugged(large), set())
        (reply,) = await answers(opened.guests[namespace("n")], frame(DISCOVER))
        assert bytes([26, 2]) + (1450).to_bytes(2, "big") in reply

    play(story)


def test_so_many_frames_are_answered_at_a_time(monkeypatch):
    monkeypatch.setattr(services, "MOST_FRAMES", 2)
    guests, frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with guests, frames:
        for one in (guests, frames):
            one.setblocking(False)
        service = NetworkService(OPTIONS, "n", describe, _sockets=[frames])
        service.know(plugged(PORT))
        for _ in range(3):
            guests.send(frame(DISCOVER))
        for left in (2, 1):
            service._on_frames()
            for _ in range(left):
                guests.recv(2048)
            with pytest.raises(BlockingIOError):
                guests.recv(2048)


async def metadata(opened, network):
    reader, writer = await asyncio.open_connection(*opened.http[namespace(network)])
    writer.write(b"GET /latest/meta-data/hostname HTTP/1.1\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer.split()[1]


def test_metadata_is_that_of_the_port_with_the_address(opened):
    here = msgspec.structs.replace(PORT.addresses[0], address="127.0.0.1")

    async def story(running):
        await running.update(OPTIONS, plugged(PORT), set())
        assert await metadata(opened, "n") == b"404", "nobody has this address"
        await running.update(OPTIONS, plugged(msgspec.structs.replace(PORT, addresses=[here])), set())
        assert await metadata(opened, "n") == b"200"
        assert opened.entered == [namespace("n")], "the sockets stay"

    play(story)


def test_a_network_is_served_while_it_has_ports(opened):
    async def story(running):
        await running.update(OPTIONS, plugged(PORT, OTHER), set())
        assert opened.entered == [namespace("m"), namespace("n")]
        stranger = frame(DISCOVER, source=OTHER.mac, hardware=OTHER.mac)
        assert await answers(opened.guests[namespace("n")], stranger) == [], "it is in the other network"
        await running.update(OPTIONS, plugged(PORT), set())
        assert [one.fileno() for one in opened.every[:3]] == [-1] * 3
        assert len(await answers(opened.guests[namespace("n")], frame(DISCOVER))) == 1
        await running.update(OPTIONS, plugged(PORT, OTHER), {namespace("n")})
        assert opened.entered[2:] == [namespace("m"), namespace("n")], "the new namespace has none of the old sockets"
        assert [one.fileno() for one in opened.every[3:6]] == [-1] * 3
        assert len(await answers(opened.guests[namespace("n")], frame(DISCOVER))) == 1
        numbers = [opened.every[-3].fileno(), opened.every[-1].fileno()]
        await running.stop()
        assert not any(asyncio.get_running_loop().remove_reader(number) for number in numbers), "nobody reads them"
        assert {one.fileno() for one in opened.every} == {-1}
        await running.update(OPTIONS, plugged(PORT), set())
        assert opened.entered[-1] == namespace("n")

    play(story)


def test_a_service_that_did_not_start_can_be_stopped():
    asyncio.run(NetworkService(OPTIONS, "n", describe).stop())


def test_who_shall_forget_a_server_is_told():
    forgotten = []
    NetworkServices(describe, forgotten.append).forget("server")
    NetworkServices(describe).forget("server")
    assert forgotten == ["server"]
