"""The scheduler over real databases: what it reads, when it reads again, and what a request needs to know."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Unreachable
from kilonova.placement.aggregates import join_aggregate
from kilonova.placement.inventories import set_accepting
from kilonova.placement.traits import set_disabled
from kilonova.scheduler import service
from kilonova.scheduler.request import ImageFacts
from kilonova.schema.tables import cell
from kilonova.settings import FilterOptions, Settings
from kilonova.store import rows
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


def test_a_host_whose_state_proves_nothing_is_unknown(run: Run) -> None:
    async def story(lab: Lab) -> None:
        ids = await add_host(lab.stores, "a", seen=100)
        decision = (await lab.scheduler.place(SMALL, ["cell1"])).decision
        assert decision.chosen is None and (decision.unknown, decision.unheard) == (1, ("a",))
        assert decision.awaited() == "a to be heard"
        assert [one.passed for one in decision.verdicts] == [None]
        (count,) = (one for one in decision.counts if one.filter == "ComputeFilter")
        assert (count.passed, count.rejected, count.unknown) == (0, 0, 1)
        await lab.change(cell.hosts, {"last_seen": time.time(), "returning": 1}, name="a")
        assert (await lab.scheduler.place(SMALL, ["cell1"])).decision.unknown == 1
        await lab.change(cell.hosts, {"returning": 0}, name="a")
        await set_accepting(lab.stores.placement, ids["provider_id"], False)
        assert (await lab.scheduler.place(SMALL, ["cell1"])).decision.unknown == 1, "between two commits of its return"
        for closed in ({"disabled": 1}, {"disabled": 0, "forced_down": 1}):
            await lab.change(cell.hosts, closed, name="a")
            assert (await lab.scheduler.place(SMALL, ["cell1"])).decision.unknown == 0, closed

    run(story)


def test_hosts_of_a_cell_that_is_away_are_unknown_unless_placement_speaks_against_them(run: Run) -> None:
    """Also to a scheduler that has never read that cell: control knows its hosts, placement what they have."""

    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a")
        ids = await add_host(lab.stores, "b")
        large = asked(flavor=FLAVOR.__class__(name="l", vcpus=10_000, memory_mb=128, disk_gb=1))
        fresh = Lab(lab.stores, lab.scheduler.settings)
        assert await lab.chosen() == "a"
        outage = _Away(lab.stores)
        lab.clock.at += 2
        for scheduler in (lab.scheduler, fresh.scheduler):
            decision = (await scheduler.place(SMALL, ["cell1"])).decision
            assert decision.chosen is None and (decision.unknown, decision.away) == (2, ("cell1",))
            assert decision.awaited() == "the database of cell1 to answer"
            assert {(one.filter, one.passed) for one in decision.verdicts} == {("cell", None)}
            decision = (await scheduler.place(large, ["cell1"])).decision
            assert decision.chosen is None and decision.unknown == 0, "placement knows that nobody has so many"
            named = msgspec.structs.replace(SMALL, wanted_host="c")
            assert (await scheduler.place(named, ["cell1"])).decision.unknown == 0, "control knows no such host"
            forced = msgspec.structs.replace(SMALL, forced_host="a")
            decision = (await scheduler.place(forced, ["cell1"])).decision
            assert decision.chosen is None and decision.unknown == 1, "nor is a forced host taken blindly"
        await set_disabled(lab.stores.placement, ids["provider_id"], True)
        assert (await lab.scheduler.place(SMALL, ["cell1"])).decision.unknown == 1, "its trait says that b is disabled"
        outage.end()
        assert await lab.chosen() == "a" and await fresh.chosen() == "a"

    run(story)


def test_several_servers_wait_only_where_all_of_them_could_fit(run: Run) -> None:
    async def story(lab: Lab) -> None:
        for name, seen in (("a", 0), ("b", 100)):
            await add_host(lab.stores, name, seen=seen)
        big = asked(flavor=FLAVOR.__class__(name="b", vcpus=5, memory_mb=128, disk_gb=1))
        for number, unknown in ((2, 1), (3, 0)):
            requests = [msgspec.structs.replace(big, server=f"s{n}") for n in range(number)]
            last = (await lab.scheduler.place_many(requests, ["cell1"]))[-1].decision
            assert last.chosen is None and last.unknown == unknown, number

    run(story)


class _Away:
    """cell1 does not answer until `end`."""

    def __init__(self, stores: Any) -> None:
        self.cell = stores.cell("cell1")
        self.read, self.cell.read = self.cell.read, self._refuse

    async def _refuse(self, body: Any, *, few: bool = False) -> Any:
        raise Unreachable("cell1 is away")

    def end(self) -> None:
        self.cell.read = self.read


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


def test_aggregates_count_while_hosts_are_loaded_again(run: Run, monkeypatch: Any) -> None:
    """A host registers, and another request reads it while this one looks around: the hosts are shared."""
    settings = Settings(filter_scheduler=FilterOptions(enabled_filters=("AggregateMultiTenancyIsolation",)))
    look = service.look_around

    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a", reported_at=time.time())
        made = await lab.aggregates.create("rack", None)
        await lab.aggregates.change(made.id, metadata={"filter_tenant_id": "theirs"})
        await lab.aggregates.add_host(made.id, "a")
        foreign = asked(flavor=SMALL.flavor, project="ours")
        assert await lab.chosen(foreign) is None

        async def meanwhile(*args: Any) -> Any:
            await lab.change(cell.hosts, {"address": f"10.0.0.{next(numbers)}", "reported_at": time.time()}, name="a")
            await lab.scheduler._host_cache.sync("cell1")
            return await look(*args)

        numbers = itertools.count(1)
        monkeypatch.setattr(service, "look_around", meanwhile)
        assert await lab.chosen(foreign) is None
        assert await lab.chosen(asked(flavor=SMALL.flavor, project="theirs")) == "a"

    run(story, settings)


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


def test_another_image_is_judged_by_what_the_server_holds_and_promises_nothing(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a")
        image = ImageFacts(id="new", properties={"hw_architecture": "aarch64"})
        request = asked(image=image, wanted_host="a", server="s")
        decision = await lab.scheduler.judge_in_place(request, "cell1")
        assert decision.chosen is None and decision.considered == 1
        plain = msgspec.structs.replace(request, image=ImageFacts(id="new"))
        decision = await lab.scheduler.judge_in_place(plain, "cell1")
        assert decision.chosen is not None and decision.chosen.host == "a"
        assert not lab.scheduler._promises.since(0)

    run(story)


def test_another_image_waits_while_the_cell_does_not_answer(run: Run, monkeypatch: Any) -> None:
    async def story(lab: Lab) -> None:
        await add_host(lab.stores, "a")

        async def away(cell: str, fresh: bool) -> bool:
            return False

        monkeypatch.setattr(lab.scheduler, "_reads_hosts", away)
        with pytest.raises(Unreachable, match="the database of cell1 does not answer"):
            await lab.scheduler.judge_in_place(asked(wanted_host="a", server="s"), "cell1")

    run(story)
