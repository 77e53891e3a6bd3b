"""From the API to the packet: a rule is added, and a running guest is reached; a guest asks for its metadata."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import msgspec

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.config_drive import PLAIN
from kilonova.compute.network.follower import Declared, GuestDescriptions, NetworkFollower
from kilonova.compute.network.layout import Plugged
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestContents, GuestSecrets
from kilonova.domain.host_network import (
    ContentsAnswer,
    ContentsQuestion,
    NetworkAnswer,
    NetworkQuestion,
    pack,
    version_of,
)
from kilonova.domain.network import WantedPort
from kilonova.schema.tables.control import host_mappings
from kilonova.services.network.wakeups import Wakeups
from kilonova.store import rows
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade
from tests.guests.network.conftest import Play
from tests.guests.network.lab import Guest, Host, Lab
from tests.unit.services.network.bench import Bench, WallClock

SERVERS = [f"5e000000-0000-4000-8000-00000000000{number}" for number in range(2)]
INTERVAL = 60.0  # of heartbeats: what comes sooner was woken


class Controller:
    """The network service and a conductor's part for hosts, on one bus."""

    def __init__(self, bench: Bench, bus: MemoryBus) -> None:
        self.bench, self.bus, self.questions = bench, bus, 0

    async def serve(self) -> None:
        await self.bus.serve("conductor.network", self._on_network)
        await self.bus.serve("conductor.contents", self._on_contents)

    async def _on_network(self, body: bytes) -> bytes:
        self.questions += 1
        asked = msgspec.json.decode(body, type=NetworkQuestion)
        document = await self.bench.net.host_document(
            asked.host, tunnel_address=asked.tunnel_address, is_node=asked.is_node
        )
        packed = pack(document)
        version = version_of(packed)
        return msgspec.json.encode(NetworkAnswer(version=version, document=b"" if version == asked.have else packed))

    async def _on_contents(self, body: bytes) -> bytes:
        asked = msgspec.json.decode(body, type=ContentsQuestion)
        spec = GuestSpec(
            server=asked.server,
            copy=1,
            name="web",
            vcpus=1,
            memory_mb=64,
            disk_gb=1,
            contents=GuestContents(hostname=f"web-{asked.server[-1]}"),
        )
        return msgspec.json.encode(ContentsAnswer(guest=spec, secrets=GuestSecrets(user_data="aGVsbG8=")))


async def plugged(controller: Controller, host: Host, server: str, network_id: str) -> Guest:
    bench = controller.bench
    await bench.allocate((server, 1, 1), WantedPort(network_id=network_id), host=host.name)
    (port,) = (await bench.net.guest_ports([server]))[server]
    guest = await host.plug(port)
    await host.network.ensure_plugged(server, 1, port)
    return guest


def test_a_rule_of_the_api_opens_a_port_on_another_host(play: Play) -> None:
    async def story(lab: Lab) -> None:
        url = f"sqlite:///{lab.folder}/control.db"
        await upgrade(url, "control")
        store = SqliteStore("control", f"{lab.folder}/control.db", threaded=True, clock=WallClock())
        bus = MemoryBus(MemoryHub(), "test")
        await bus.start()
        bench = Bench(store)
        bench.net = bench.again(wakeups=Wakeups(store, bus, WallClock(), lambda cell: ""))
        controller = Controller(bench, bus)
        await controller.serve()
        hosts = [await lab.host(), await lab.host()]
        followers = []
        for host in hosts:
            agent = SimpleNamespace(host=host.name, session="s", epoch=1)
            descriptions = GuestDescriptions(agent, bus, WallClock(), PLAIN)
            host.network._services._describe = descriptions.describe
            declared = Declared(host.tunnel_address)
            follower = NetworkFollower(agent, host.network, bus, interval=INTERVAL, declared=declared)
            followers.append(follower)

            async def map_host(tx, name=host.name):
                await rows.put(tx, host_mappings, host=name, cell="cell1")

            await store.write(map_host)
            await follower.start()
        network, _ = await bench.network("10.7.0.0/24")
        a, b = [
            await plugged(controller, host, server, network["id"]) for host, server in zip(hosts, SERVERS, strict=True)
        ]
        try:
            await asyncio.sleep(1.5)
            for guest in (a, b):
                await asyncio.to_thread(guest.ask_dhcp, lab.folder)
            assert await asyncio.to_thread(a.reaches, b.address), "members of the default group, over the tunnel"
            metadata = await asyncio.to_thread(a.get, "/openstack/latest/meta_data.json")
            assert msgspec.json.decode(metadata)["uuid"] == SERVERS[0]
            assert await asyncio.to_thread(b.get, "/latest/user-data") == "hello"
            await closes_and_opens(bench, a, b)
            asked = controller.questions
            await asyncio.sleep(1.0)
            assert controller.questions == asked, "nobody asks while nothing changes"
        finally:
            for follower in followers:
                await follower.stop()
            for host, server in zip(hosts, SERVERS, strict=True):
                await host.network.ensure_unplugged(server, 1)
            await bus.close()
            await store.close()

    play(story)


async def closes_and_opens(bench: Bench, a: Guest, b: Guest) -> None:
    """Within 2 s of the request."""
    (group,) = await bench.net.groups.all(None)
    for rule in group["security_group_rules"]:
        if rule["direction"] == "ingress":
            await bench.net.rules.delete(None, rule["id"])
    assert await within(2.0, a, b, False)
    wish = {"project_id": group["project_id"], "security_group_id": group["id"], "direction": "ingress"}
    await bench.net.rules.create(None, [{**wish, "protocol": "icmp", "remote_ip_prefix": "10.7.0.0/24"}])
    assert await within(2.0, a, b, True)


async def within(seconds: float, a: Guest, b: Guest, wanted: bool) -> bool:
    began = time.monotonic()
    while await asyncio.to_thread(a.reaches, b.address) is not wanted:
        if time.monotonic() - began > seconds:
            return False
    return True


def test_a_guest_that_is_defined_again_reads_what_is_new() -> None:
    async def story() -> None:
        bus, answers = MemoryBus(MemoryHub(), "test"), iter(["old", "new"])
        await bus.start()

        async def handler(body: bytes) -> bytes:
            spec = GuestSpec(server="s", copy=1, name=next(answers), vcpus=1, memory_mb=1, disk_gb=1)
            return msgspec.json.encode(ContentsAnswer(guest=spec))

        await bus.serve("conductor.contents", handler)
        agent = SimpleNamespace(host="h", session="s", epoch=1)
        descriptions = GuestDescriptions(agent, bus, WallClock(), PLAIN)
        plugged = Plugged("s", 1, None)  # type: ignore[arg-type]

        async def name() -> str:
            files = await descriptions.describe(plugged)
            assert files is not None
            return msgspec.json.decode(files["openstack/latest/meta_data.json"])["name"]

        assert [await name(), await name()] == ["old", "old"]
        descriptions.forget("s")
        assert await name() == "new"
        await bus.close()

    asyncio.run(story())
