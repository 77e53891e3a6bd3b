"""The scheduler over real databases: what it reads, when it reads again, and what a request needs to know."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from kilonova.placement.aggregates import join_aggregate
from kilonova.placement.inventories import set_accepting
from kilonova.settings import FilterOptions, Settings
from kilonova.store import rows
from kilonova.store.tables import cell
from kilonova.world import Tx
from tests.unit.operations.cloud_rows import add_host, add_mapping, add_server
from tests.unit.scheduler.lab import SMALL, Lab, Run
from tests.unit.scheduler.worlds import FLAVOR, asked


def test_hosts_that_come_change_and_go(run: Run) -> None:
    async def story(lab: Lab) -> None:
        assert await lab.chosen() is None
        ids = await add_host(lab.stores, "a")
        assert await lab.chosen() == "a", "nothing fitted, so hosts were read again"
        await lab.change(cell.hosts, {"disabled": 1}, name="a")
        assert await lab.chosen() == "a", "what is remembered is a second old at most"
        lab.clock.at += 2
        assert await lab.chosen() is None
        await lab.change(cell.hosts, {"disabled": 0}, name="a")
        assert await lab.chosen() == "a"
        await set_accepting(lab.stores.placement, ids["provider_id"], False)
        assert await lab.chosen() is None, "placement is asked each time"

        async def drop(tx: Tx) -> None:
            await rows.remove(tx, cell.hosts, name="a")

        await lab.stores.cell("cell1").write(drop)
        placing = await lab.scheduler.place(SMALL, ["cell1"])
        assert placing.decision.considered == 0

    run(story)


def test_a_host_that_registers_again_is_read_again(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a", reported_at=time.time())
        assert await lab.chosen() == "a"
        rebuilt = await add_host(lab.stores, "b", reported_at=time.time())
        await lab.change(cell.hosts, {"provider_id": rebuilt["provider_id"], "reported_at": time.time()}, name="a")
        lab.clock.at += 2
        providers = {view.provider for view in (await lab.known()).views}
        assert providers == {rebuilt["provider_id"]}

    run(story)


def test_who_asks_together_shares_one_look(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a")
        await lab.chosen()
        store: Any = lab.stores.cell("cell1")
        spent = []
        for together in (1, 10):
            lab.clock.at += 2
            before = store.stats.statements
            assert await asyncio.gather(*(lab.chosen() for _ in range(together))) == ["a"] * together
            spent.append(store.stats.statements - before)
        assert spent[0] == spent[1] > 0

    run(story)


def test_a_silent_host_is_on_its_way_until_it_surely_is_not(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a", seen=100)
        placing = await lab.scheduler.place(SMALL, ["cell1"])
        assert placing.decision.chosen is None and placing.on_their_way == ("a",)
        assert lab.scheduler.may_wait("op")
        lab.clock.at += 61
        assert not lab.scheduler.may_wait("op")

    run(story)


def test_a_zone_counts_as_soon_as_it_is_made(run: Run) -> None:
    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            ids = await add_host(lab.stores, name)
        assert await lab.chosen() == "a"
        made = await lab.aggregates.create("rack", "east")
        await join_aggregate(lab.stores.placement, ids["provider_id"], made.uuid)
        await lab.aggregates.add_host(made.id, "b")
        assert await lab.chosen(asked(flavor=SMALL.flavor, zone="east")) == "b"
        assert await lab.scheduler.zone_of("b") == "east" and await lab.scheduler.zone_of("a") == "nova"

    run(story)


def test_servers_are_counted_where_somebody_asks(run: Run) -> None:
    settings = Settings(
        filter_scheduler=FilterOptions(enabled_filters=("NumInstancesFilter",), max_instances_per_host=1)
    )

    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            await add_host(lab.stores, name)
        await add_server(lab.stores, "s1", "a")
        assert await lab.chosen() == "b"

    run(story, settings)


def test_a_flavor_may_ask_how_many_servers_there_are(run: Run) -> None:
    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            await add_host(lab.stores, name)
        await add_server(lab.stores, "s1", "a")
        assert await lab.chosen() == "a", "by default nobody counts"
        empty = msgspec.structs.replace(SMALL.flavor, extra_specs={"capabilities:num_instances": "<= 0"})
        assert await lab.chosen(asked(flavor=empty)) == "b"

    run(story)


def test_busy_and_failing_hosts_come_last(run: Run) -> None:
    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            await add_host(lab.stores, name)
        busy = await add_server(lab.stores, "s1", "a", task_state="rebuilding")
        assert await lab.chosen() == "b"
        await lab.change(cell.servers, {"task_state": None}, id=busy)
        await lab.change(cell.hosts, {"failed_builds": 1}, name="b")
        lab.clock.at += 2
        assert await lab.chosen() == "a"

    run(story)


def test_neighbours_are_found_in_their_cells(run: Run) -> None:
    settings = Settings(filter_scheduler=FilterOptions(enabled_filters=("DifferentHostFilter", "SameHostFilter")))

    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            await add_host(lab.stores, name)
        server = await add_server(lab.stores, "s1", "a")
        await add_mapping(lab.stores, server)
        assert await lab.chosen(asked(flavor=SMALL.flavor, hints={"different_host": [server]})) == "b"
        assert await lab.chosen(asked(flavor=SMALL.flavor, hints={"same_host": [server]})) == "a"

    run(story, settings)


def test_several_at_once(run: Run) -> None:
    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            await add_host(lab.stores, name)
        large = FLAVOR.__class__(name="l", vcpus=8, memory_mb=128, disk_gb=1)
        requests = [asked(flavor=large, server=f"s{n}") for n in range(2)]
        placed = await lab.scheduler.place_many(requests, ["cell1"])
        assert [placing.decision.chosen.host for placing in placed if placing.decision.chosen] == ["a", "b"]
        three = [*requests, asked(flavor=large, server="s2")]
        assert (await lab.scheduler.place_many(three, ["cell1"]))[-1].decision.chosen is None

    run(story)
