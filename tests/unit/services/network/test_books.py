"""Whatever happens: each address of a pool is either free or some port's, and nothing hangs on what is gone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.network import WantedPort
from kilonova.schema.tables import network as tables
from kilonova.services.network.addresses import from_key, ranges_of
from kilonova.world import Row
from tests.support.mappings import map_servers
from tests.unit.services.network.bench import PROJECT, Bench, Kind

ADDRESSES = [f"10.0.0.{last}" for last in range(0, 17)]


def spread(ranges: Sequence[tuple[str, str]]) -> list[str]:
    return [str(from_key(f"{key:08x}")) for first, last in ranges for key in range(int(first, 16), int(last, 16) + 1)]


def pools_of(subnet: Row) -> list[dict[str, str]]:
    pools: list[dict[str, str]] = msgspec.json.decode(subnet["pools"])
    return pools


async def check_books(bench: Bench) -> None:
    fixed = await bench.rows(tables.fixed_ips)
    port_ids = {row["id"] for row in await bench.rows(tables.ports)}
    subnets = {row["id"]: row for row in await bench.rows(tables.subnets)}
    assert {row["port_id"] for row in fixed} <= port_ids
    assert {row["port_id"] for row in await bench.rows(tables.port_groups)} <= port_ids
    free: dict[str, list[tuple[str, str]]] = {subnet_id: [] for subnet_id in subnets}
    for row in await bench.rows(tables.free_ranges):
        free[row["subnet_id"]].append((row["first"], row["last"]))
    for subnet_id, subnet in subnets.items():
        taken = {row["address"] for row in fixed if row["subnet_id"] == subnet_id}
        listed = spread(free[subnet_id])
        assert len(listed) == len(set(listed)), "an address is free twice"
        assert not taken & set(listed), "an address is free and taken"
        assert set(listed) == set(spread(ranges_of(pools_of(subnet)))) - taken


@pytest.mark.parametrize("seed", range(6))
def test_addresses_are_neither_lost_nor_doubled(bench: Kind, seed: int) -> None:
    async def story(bench: Bench) -> None:
        chance = random.Random(seed)
        network, subnet = await bench.network("10.0.0.0/28")
        await map_servers(bench.store, *(f"server{number}" for number in range(4)), project=PROJECT)
        servers: dict[str, int] = {}
        done = 0

        async def make() -> None:
            wanted = chance.choice([None, None, [{"ip_address": chance.choice(ADDRESSES)}], []])
            await bench.port(network, **({} if wanted is None else {"fixed_ips": wanted}))

        async def change() -> None:
            there = await bench.net.ports.all(None)
            wanted = [{"ip_address": one} for one in chance.sample(ADDRESSES, chance.randint(0, 3))]
            await bench.net.ports.update(None, chance.choice(there)["id"], {"fixed_ips": wanted})

        async def drop() -> None:
            await bench.net.ports.delete(None, chance.choice(await bench.net.ports.all(None))["id"])

        async def allocate() -> None:
            server = f"server{chance.randint(0, 3)}"
            servers[server] = servers.get(server, 0) + 1
            wanted = [WantedPort(network_id=network["id"])] * chance.randint(1, 3)
            await bench.allocate((server, servers[server], 1), *wanted)

        async def release() -> None:
            server = f"server{chance.randint(0, 3)}"
            servers[server] = servers.get(server, 0) + 1
            await bench.net.release((server, servers[server], 1), server_id=server)

        async def repool() -> None:
            first = chance.randint(2, 8)
            pools = [{"start": f"10.0.0.{first}", "end": f"10.0.0.{chance.randint(first, 14)}"}]
            await bench.net.subnets.update(None, subnet["id"], {"allocation_pools": pools})

        for _ in range(80):
            step = chance.choice([make, make, make, change, drop, allocate, release, repool])
            try:
                await step()
                done += 1
            except (Refused, Failed, IndexError):
                pass
            await check_books(bench)
        assert done >= 30, "most of it must really have happened"

    bench.run(story)
