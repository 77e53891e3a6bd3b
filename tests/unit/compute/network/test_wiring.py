"""Which network a host with real guests has, and what it is told when."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

import msgspec
import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.network.bridged import BridgedNetwork
from kilonova.compute.network.layout import Plugged
from kilonova.compute.network.user import UserNetwork
from kilonova.compute.network.wiring import Networking, is_bridged
from kilonova.domain.errors import Failed
from kilonova.domain.host_network import NetworkAnswer, NetworkDocument, pack
from kilonova.settings import NetworkOptions
from tests.unit.compute.network.test_bridged import ONE


@pytest.mark.parametrize(
    ("driver", "user", "expected"),
    [("bridged", 1000, True), ("bridged", 0, True), ("user", 0, False), ("auto", 0, True), ("auto", 1000, False)],
)
def test_bridges_take_root_unless_the_operator_says_otherwise(tmp_path, monkeypatch, driver, user, expected):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    options = NetworkOptions(driver=driver)
    assert is_bridged(options) is expected
    networking = Networking(None, None, options, 10.0)
    network = networking.make("host1", tmp_path)
    assert isinstance(network, BridgedNetwork if expected else UserNetwork) and network is networking.network
    assert network.filters is expected


def test_metadata_waits_for_the_agent(tmp_path):
    async def story():
        networking = Networking(None, None, NetworkOptions(driver="user"), 10.0)
        networking.make("host1", tmp_path)
        networking._forget("server")  # nobody follows yet
        with pytest.raises(Failed, match="the agent has not started yet") as why:
            await networking._describe(Plugged("server", 1, ONE))
        assert why.value.code == "not_registered"

    asyncio.run(story())


@pytest.mark.parametrize("driver", ["bridged", "user"])
def test_a_host_with_bridges_follows_the_conductor_from_its_start_to_its_end(tmp_path, driver):
    async def story():
        bus, asked = MemoryBus(MemoryHub(), "host1"), asyncio.Event()
        await bus.start()

        async def answer(body):
            asked.set()
            assert b'"192.0.2.1"' in body and b'"is_node":true' in body
            return msgspec.json.encode(NetworkAnswer(version="1", document=pack(NetworkDocument())))

        await bus.serve("conductor.network", answer)
        options = NetworkOptions(driver=driver, local_ip="192.0.2.1", node=True)
        networking = Networking(bus, SimpleNamespace(monotonic=lambda: 1.0), options, 60.0)
        networking.make("host1", tmp_path)
        stopped, applied = [], asyncio.Event()

        async def update(document, requested_at):
            applied.set()

        async def stop():
            stopped.append(True)

        networking.network.update, networking.network.stop = update, stop
        await networking.follow(SimpleNamespace(host="host1", session="s", epoch=1))
        assert networking.descriptions is not None and (networking.follower is not None) is (driver == "bridged")
        if driver == "bridged":
            async with asyncio.timeout(20):
                await applied.wait()
                asked.clear()
                networking._forget("server")
                await asked.wait()
        await networking.stop()
        assert not [task for task in asyncio.all_tasks() if "_live" in repr(task)]
        assert stopped == [True] and asked.is_set() is (driver == "bridged")
        await bus.close()

    asyncio.run(story())


def test_what_an_order_changed_is_asked_for_again(tmp_path):
    forgotten = []
    networking = Networking(None, None, NetworkOptions(driver="user"), 10.0)
    networking.descriptions = SimpleNamespace(forget=forgotten.append)
    networking._forget("server")
    assert forgotten == ["server"]
