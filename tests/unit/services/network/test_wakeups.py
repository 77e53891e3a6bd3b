"""Which hosts are woken by which change, and that each is woken once for all that a moment brings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kilonova.domain.errors import StoreError
from kilonova.domain.network import WantedPort
from kilonova.schema.tables.control import host_mappings
from kilonova.schema.tables.network import hosts, ports
from kilonova.services.network.locks import lock_networks
from kilonova.services.network.wakeups import MOMENT, Wakeups
from kilonova.store import rows
from kilonova.world import Tx
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind

CELLS = {"host1": "cell1", "host2": "cell2", "host3": "cell1", "node": "cell1", "silent": "cell1"}
HOSTS = {f"of.{cell}.host.{host}.network": host for host, cell in CELLS.items()}  # by where they are woken
SERVER = "5e000000-0000-4000-8000-000000000001"


class Bus:
    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def cast(self, subject: str, body: bytes) -> None:
        self.subjects.append(subject)


class Quick:
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Cloud:
    """Hosts of two projects with a network and a group each, a node, one that only has a port of nobody, and one that
    never asked for a document."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.bus, self.clock = bench, Bus(), Quick()
        self.wakeups = Wakeups(bench.store, self.bus, self.clock, lambda cell: f"of.{cell}")  # type: ignore[arg-type]

    async def build(self) -> Cloud:
        bench = self.bench
        self.mine, _ = await bench.network()
        self.theirs, _ = await bench.network(project=OTHER)
        self.group = await bench.one("security_group", OTHER)
        bound = {"binding:host_id": "host1"}
        await bench.port(self.mine, **bound)
        await bench.port(self.theirs, OTHER, security_groups=[self.group["id"]], **{"binding:host_id": "host2"})
        third, _ = await bench.network(project="third")
        nobodys = await bench.port(third, "third", **{"binding:host_id": "host3"})
        await bench.port(self.mine, **{"binding:host_id": "silent"})

        async def known(tx: Tx) -> None:
            await lock_networks(tx, [third["id"]])
            await rows.change(tx, ports, {"project_id": ""}, id=nobodys["id"])
            for host, cell in CELLS.items():
                await rows.put(tx, host_mappings, host=host, cell=cell)
                if host != "silent":
                    said = {"tunnel_address": "", "is_node": int(host == "node"), "declared_at": 0.0}
                    await rows.put(tx, hosts, host=host, **said)

        await bench.store.write(known)
        return self

    async def woken(self) -> list[str]:
        """The hosts that were woken since the last look."""
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
            await asyncio.gather(*others)
        subjects, self.bus.subjects = self.bus.subjects, []
        return sorted(HOSTS[subject] for subject in subjects)


def test_the_hosts_that_a_change_concerns_are_woken(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        both = {"network_id": cloud.mine["id"], "project_id": OTHER}
        cases: list[tuple[str, Mapping[str, Any], list[str]]] = [
            ("network", {"id": cloud.mine["id"], "project_id": OTHER}, ["host1", "node"]),
            ("subnet", both, ["host1", "node"]),
            ("port", both, ["host1", "host2", "node"]),
            ("port", {**both, "project_id": ""}, ["host1", "node"]),
            ("security_group", {"id": cloud.group["id"], "project_id": PROJECT}, ["host1", "node"]),
            ("security_group_rule", {"security_group_id": cloud.group["id"], "project_id": PROJECT}, ["host2", "node"]),
            ("security_group_rule", {"group_id": cloud.group["id"], "project_id": PROJECT}, ["host2", "node"]),
            ("router", {"id": "r", "project_id": PROJECT}, ["node"]),
            ("floatingip", {"id": "f", "project_id": PROJECT}, ["node"]),
        ]
        for kind, record, expected in cases:
            cloud.wakeups.touch_record(kind, record)
            assert await cloud.woken() == expected, (kind, record)
        assert cloud.clock.slept == [MOMENT] * len(cases)

    bench.run(story)


def test_a_moment_brings_each_host_one_wake_up(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        for _ in range(3):
            cloud.wakeups.touch(projects=[PROJECT], networks=[cloud.mine["id"]])
        cloud.wakeups.touch(groups=[cloud.group["id"]])
        assert await cloud.woken() == ["host1", "host2", "node"]
        assert len(cloud.clock.slept) == 1
        cloud.wakeups.touch()
        assert await cloud.woken() == ["node"], "what was told is not told again"

    bench.run(story)


def test_what_changes_while_hosts_are_woken_wakes_them_again(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        cast = cloud.bus.cast

        async def changing(subject: str, body: bytes) -> None:
            await cast(subject, body)
            if len(cloud.bus.subjects) == 1:
                cloud.wakeups.touch(networks=[cloud.theirs["id"]])

        cloud.bus.cast = changing  # type: ignore[method-assign]
        cloud.wakeups.touch(networks=[cloud.mine["id"]])
        assert await cloud.woken() == ["host1", "host2", "node", "node"]

    bench.run(story)


def test_a_database_that_is_away_is_logged_and_the_next_change_is_told(
    bench: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bench: Bench) -> None:
        cloud = await Cloud(bench).build()
        read = bench.store.read

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreError("away")

        bench.store.read = away
        cloud.wakeups.touch(networks=[cloud.mine["id"]])
        assert await cloud.woken() == []
        assert "no wake-up sent" in caplog.text and "reason=away" in caplog.text
        bench.store.read = read
        cloud.wakeups.touch(networks=[cloud.theirs["id"]])
        assert await cloud.woken() == ["host2", "node"]

    bench.run(story)


def test_nobody_is_woken_where_no_host_has_asked(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        cloud = Cloud(bench)
        await bench.network()
        cloud.wakeups.touch(projects=[PROJECT])
        assert await cloud.woken() == []

    bench.run(story)


class Noted:
    """What was touched, in place of wake-ups."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Mapping[str, Any]]] = []

    def touch_record(self, kind: str, record: Mapping[str, Any]) -> None:
        self.records.append((kind, record))

    def take(self) -> list[tuple[str, Mapping[str, Any]]]:
        found, self.records = self.records, []
        return found


def test_every_change_tells_of_its_record(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        noted = Noted()
        bench.net = bench.again(wakeups=noted)  # type: ignore[arg-type]
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        group = await bench.one("security_group")
        wishes: dict[str, dict[str, Any]] = {
            "network": {},
            "subnet": {"network_id": outside["id"], "cidr": "10.7.0.0/24"},
            "port": {"network_id": outside["id"]},
            "router": {},
            "security_group": {},
            "security_group_rule": {"security_group_id": group["id"], "direction": "ingress"},
            "floatingip": {"floating_network_id": outside["id"]},
        }
        noted.take()
        for noun, wish in wishes.items():
            made = await bench.one(noun, **wish)
            changed = await bench.net.nouns[noun].update(None, str(made["id"]), {"description": "new"})
            await bench.net.nouns[noun].delete(None, str(made["id"]))
            (_, first), (_, second), (_, third) = told = noted.take()
            assert {kind for kind, _ in told} == {noun}
            assert (first, second, third["id"]) == (made, changed, made["id"])

    bench.run(story)


def test_interfaces_and_servers_tell_of_their_networks(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        noted = Noted()
        bench.net = bench.again(wakeups=noted)  # type: ignore[arg-type]
        network, subnet = await bench.network()
        router = await bench.one("router")
        own, beside = await bench.port(network), await bench.network("10.1.0.0/24")
        noted.take()

        def told() -> list[tuple[str, Any, Any]]:
            return sorted((kind, record["network_id"], record["project_id"]) for kind, record in noted.take())

        for act in (bench.net.interfaces.add, bench.net.interfaces.remove):
            await act(None, router["id"], subnet_id=subnet["id"])
            assert told() == [("subnet", network["id"], PROJECT)]
        wanted = [WantedPort(port_id=own["id"]), WantedPort(network_id=beside[0]["id"])]
        both = [("port", each["id"]) for each in (network, beside[0])]
        await bench.allocate((SERVER, 1, 1), *wanted)
        assert told() == sorted((*one, PROJECT) for one in both)
        await bench.net.bind((SERVER, 1, 2), server_id=SERVER, host="host2")
        assert told() == sorted((*one, "") for one in both)
        await bench.net.release((SERVER, 1, 3), server_id=SERVER)
        assert told() == sorted((*one, PROJECT) for one in both)

    bench.run(story)
