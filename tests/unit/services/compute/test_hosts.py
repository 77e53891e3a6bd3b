"""What is told of hosts, workers and the servers on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Unreachable
from kilonova.placement.amounts import Amount, read_amounts
from kilonova.schema.tables.control import host_mappings, workers
from kilonova.services.compute.hosts import (
    OnHost,
    Worker,
    count_servers,
    forget_worker,
    name_servers,
    number_of,
    read_away,
    read_by_cell,
    read_hosts,
    read_workers,
    service_id,
)
from kilonova.store import rows
from kilonova.world import Tx
from tests.unit.operations.cloud_rows import add_host, add_server

Run = Callable[[Any], None]


def test_hosts_of_all_cells_with_their_state(databases: Run) -> None:
    async def story(stores: Any) -> None:
        ids = await add_host(stores, "b", disabled=1, disabled_reason="old")
        await add_host(stores, "a", forced_down=1)
        await add_host(stores, "c", seen=100.0, address="192.0.2.7")
        found = await read_hosts(stores, 60.0)
        assert [(host.name, host.cell, host.state.status) for host in found] == [
            ("a", "cell1", "down"),
            ("b", "cell1", "disabled"),
            ("c", "cell1", "unknown"),  # nobody listened for so long
        ]
        assert (found[1].id, found[1].provider_id) == (ids["id"], ids["provider_id"])
        assert (found[1].disabled, found[1].disabled_reason, found[0].forced_down) == (True, "old", True)
        assert found[2].address == "192.0.2.7" and 90_060 < found[2].now - (found[2].answers_since or 0) < 90_200
        amounts = await read_amounts(stores.placement, [ids["provider_id"], "nix"])
        assert amounts == {
            ids["provider_id"]: {"VCPU": Amount(8), "MEMORY_MB": Amount(4096, 512), "DISK_GB": Amount(100)}
        }

    databases(story)


def test_servers_on_hosts(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        await add_host(stores, "b")
        one = await add_server(stores, "one", "a")
        two = await add_server(stores, "two", "a", task_state="rebooting")
        await add_server(stores, "gone", "a", deleted=1)
        await add_server(stores, "arriving", "a", task_state="spawning", hidden=1)
        await add_server(stores, "nowhere", None)
        hosts = await read_hosts(stores, 60.0)
        assert await count_servers(stores, hosts) == {"a": OnHost(servers=3, busy=2)}
        assert {host: sorted(servers) for host, servers in (await name_servers(stores, hosts)).items()} == {
            "a": sorted([(one, "one"), (two, "two")])
        }
        assert await count_servers(stores, hosts[1:]) == {} and await count_servers(stores, []) == {}

    databases(story)


def test_workers_that_live_come_first_and_the_dead_are_down(databases: Run) -> None:
    async def story(stores: Any) -> None:
        async def body(tx: Tx) -> float:
            now = await tx.now()
            for name, until in (("dead", now - 1), ("living", now + 20)):
                await rows.put(tx, workers, id=name, kind="conductor", lease_until=until, started_at=now)
            return now

        now = await stores.control.write(body)
        living, dead = await read_workers(stores, 30.0)
        assert (living.id, living.kind, living.is_up) == ("living", "conductor", True)
        assert abs(living.renewed_at - (now - 10)) < 1
        assert (dead.id, dead.is_up) == ("dead", False) and dead.renewed_at < now

    databases(story)


def test_ids_for_old_versions_are_always_the_same() -> None:
    assert number_of("e3dca60e-0f3c-4e6c-a849-71c249552970") == 0xE3DCA60E0F3C
    worker = Worker(id="any name", kind="conductor", renewed_at=0.0, is_up=True)
    ids = {service_id(worker, binary) for binary in ("nova-conductor", "nova-scheduler")}
    assert len(ids) == 2 and ids == {service_id(worker, binary) for binary in ("nova-conductor", "nova-scheduler")}


def test_a_worker_is_down_from_the_moment_its_lease_ends(databases: Run) -> None:
    async def story(stores: Any) -> None:
        now = await stores.control.write(lambda tx: tx.now())

        async def body(tx: Tx) -> None:
            for name, until in (("at the end", now), ("alone", now + 90)):
                await rows.put(tx, workers, id=name, kind="conductor", lease_until=until, started_at=now)

        await stores.control.write(body)
        found = {worker.id: worker for worker in await read_workers(stores, 30.0)}
        assert not found["at the end"].is_up
        assert found["alone"].is_up and found["alone"].renewed_at <= await stores.control.read(lambda tx: tx.now())

    databases(story)


def test_only_the_record_of_a_worker_that_is_down_is_forgotten(databases: Run) -> None:
    async def story(stores: Any) -> None:
        now = await stores.control.write(lambda tx: tx.now())

        async def body(tx: Tx) -> None:
            for name, until in (("old", now - 9), ("dead", now - 1), ("living", now + 20)):
                await rows.put(tx, workers, id=name, kind="conductor", lease_until=until, started_at=now)

        await stores.control.write(body)
        assert [await forget_worker(stores, name) for name in ("dead", "dead", "living", "nobody")] == [
            True,
            False,
            False,
            False,
        ]
        assert [worker.id for worker in await read_workers(stores, 30.0)] == ["living", "old"]

    databases(story)


class SomeAway:
    """The cell `near` answers, `away` does not, `dark` could not be opened."""

    def __init__(self, stores: Any) -> None:
        self._stores, self.control = stores, stores.control

    def cells(self) -> list[str]:
        return ["cell0", "away", "near"]

    def unopened(self) -> list[str]:
        return ["dark"]

    def outage(self, name: str) -> object:
        return object() if name == "away" else None

    def cell(self, name: str) -> Any:
        if name == "away":
            return Away()
        return self._stores.cell("cell0" if name == "cell0" else "cell1")


class Away:
    async def read(self, body: Any) -> Any:
        raise Unreachable("it is away")


def test_hosts_of_cells_that_do_not_answer_are_known_by_name(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        for host, cell in (("z", "away"), ("y", "dark"), ("x", "away"), ("w", "near")):
            values = {"host": host, "cell": cell}
            await stores.control.write(lambda tx, values=values: rows.put(tx, host_mappings, **values))
        some = SomeAway(stores)
        assert [host.name for host in await read_hosts(some, 60.0)] == ["a"]
        assert await read_away(some) == ["x", "y", "z"]
        assert await read_away(stores) == []

    databases(story)


def test_each_cell_with_hosts_is_read_and_one_that_is_away_says_nothing(databases: Run) -> None:
    async def story(stores: Any) -> None:
        async def read(store: Any) -> str:
            return await store.read(lambda tx: _say(store.name))

        assert await read_by_cell(SomeAway(stores), read) == {"dark": None, "away": None, "near": "cell1"}

        async def fail(store: Any) -> str:
            raise ValueError(store.name)

        with pytest.raises(ValueError, match="cell1"):
            await read_by_cell(stores, fail)

    databases(story)


async def _say(name: str) -> str:
    return name


def test_servers_of_a_cell_that_is_gone_since_its_hosts_were_read_are_left_out(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        one = await add_server(stores, "one", "a")
        (host,) = await read_hosts(stores, 60.0)
        gone = msgspec.structs.replace(host, cell="away", name="b")
        some, both = SomeAway(stores), [gone, msgspec.structs.replace(host, cell="near")]
        assert await count_servers(some, both) == {"a": OnHost(servers=1, busy=0)}
        assert await name_servers(some, both) == {"a": [(one, "one")]}

    databases(story)
