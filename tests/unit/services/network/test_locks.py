"""What is written inside a network or for a project is written under its lock: every test of this folder is watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.schema.tables.network import changed_ports, port_groups
from kilonova.services.network.locks import lock_network, lock_networks, lock_project
from kilonova.services.network.making import drop_ports, put_groups
from kilonova.services.network.outdated_servers import mark_group, mark_network, mark_ports
from kilonova.services.network.ranges import fill
from kilonova.world import Tx
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal

ACTS: dict[str, Callable[[Tx, Any, Any], Awaitable[None]]] = {
    "an address that becomes free": lambda tx, port, group: fill(tx, port["fixed_ips"][0]["subnet_id"], []),
    "a port that goes": lambda tx, port, group: drop_ports(tx, [port]),
    "a group that gets a member": lambda tx, port, group: put_groups(tx, port["id"], [group["id"]]),
    "a mark for a port": lambda tx, port, group: mark_ports(tx, [port["id"]]),
    "marks for a network": lambda tx, port, group: mark_network(tx, port["network_id"]),
    "marks for a group": lambda tx, port, group: mark_group(tx, group["id"]),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_write_without_its_lock_is_noticed(bench: Kind, name: str) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        port, group = await bench.port(network), await bench.one("security_group", name="web")
        others_network, _ = await bench.network(project=OTHER)

        async def unlocked(tx: Tx) -> None:
            await lock_project(tx, OTHER)
            await lock_network(tx, others_network["id"])
            await ACTS[name](tx, port, group)

        async def locked(tx: Tx) -> None:
            await lock_project(tx, PROJECT)
            await lock_network(tx, network["id"])
            await ACTS[name](tx, port, group)

        with pytest.raises(AssertionError, match="written without a lock"):
            await bench.store.write(unlocked)
        await bench.store.write(locked)
        assert not await bench.rows(changed_ports), "it is no server's"

    bench.run(story)


def test_locking_tells_what_is_there(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        (one, _), (other, _) = [await bench.network() for _ in range(2)]

        async def body(tx: Tx) -> None:
            assert (await lock_network(tx, one["id"]))["id"] == one["id"]
            assert await refusal(lock_network(tx, "none")) == "network_not_found"
            locked = await lock_networks(tx, [one["id"], "none", other["id"], one["id"]])
            assert {key: row["id"] for key, row in locked.items()} == {id: id for id in (one["id"], other["id"])}
            assert await lock_project(tx, "new") == await lock_project(tx, "new") == ""

        await bench.store.write(body)
        default = await bench.net.groups.ensure_default(PROJECT)
        assert await bench.store.write(lambda tx: lock_project(tx, PROJECT)) == default
        assert not await bench.rows(port_groups)

    bench.run(story)
