"""What was proposed counts as used until it is claimed: who counts it, how it ends, and that it refuses nobody."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from kilonova.domain.server import Flavor, to_json
from kilonova.placement.groups import GroupRule
from kilonova.placement.inventories import set_inventory
from kilonova.placement.removal import remove_provider
from kilonova.scheduler.promises import EXPIRES_AFTER
from kilonova.scheduler.report import decision_lines
from kilonova.scheduler.request import ResourceRequest
from kilonova.settings import FilterOptions, Settings
from kilonova.store.host_hardware import note_hardware
from tests.unit.domain.machines import cell, host, pinned
from tests.unit.operations.cloud_rows import add_host
from tests.unit.scheduler.lab import SMALL, Lab, Run

WHOLE = Flavor(name="whole", vcpus=8, memory_mb=128, disk_gb=1)  # all the processors that a host has
ROOM = Settings(filter_scheduler=FilterOptions(enabled_filters=("NumInstancesFilter",), max_instances_per_host=1))
NO_WEIGHTS: dict[str, Any] = {
    f"{what}_weight_multiplier": 0.0 for what in ("ram", "cpu", "disk", "io_ops", "num_instances", "pci")
}


def server(name: str, **changes: Any) -> ResourceRequest:
    return msgspec.structs.replace(SMALL, server=name, **changes)


async def add_hosts(lab: Lab, *names: str) -> None:
    for name in names:
        await add_host(lab.stores, name)


async def in_turn(lab: Lab, *requests: ResourceRequest) -> list[str | None]:
    """None of them claims anything before the last has asked."""
    return [await lab.chosen(request) for request in requests]


def test_who_asks_together_is_spread(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b", "c")
        found = await asyncio.gather(*(lab.chosen(server(f"s{n}")) for n in range(6)))
        assert Counter(found) == {"a": 2, "b": 2, "c": 2}

    run(story)


def test_it_ends_with_the_claim(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        assert await lab.chosen(server("s1")) == "a"
        lab.scheduler.claim_ended(["another"])
        assert await lab.chosen(server("s2")) == "b"
        lab.scheduler.claim_ended(["s1", "s2"])
        assert await lab.chosen(server("s3")) == "a"

    run(story)


def test_it_ends_by_age(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        assert await lab.chosen(server("s1")) == "a"
        lab.clock.at += EXPIRES_AFTER - 0.1
        assert await lab.chosen(server("s2")) == "b"
        lab.clock.at += 0.1
        assert await lab.chosen(server("s3")) == "a", "only what s2 was promised is left"

    run(story)


def test_claims_that_are_committed_while_another_reads_count_for_that_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b", "c")
        await lab.chosen(server("s1"))
        snapshot = lab.scheduler._snapshot
        sync = snapshot.sync

        async def late(store: Any) -> None:
            await sync(store)
            monkeypatch.setattr(snapshot, "sync", sync)
            assert await lab.chosen(server("s2")) == "b"
            lab.scheduler.claim_ended(["s1", "s2"])

        monkeypatch.setattr(snapshot, "sync", late)
        assert await lab.chosen(server("s3")) == "c"
        assert await lab.chosen(server("s4")) == "a", "who asks later reads what is claimed"

    run(story)


def test_its_own_is_not_counted_when_a_server_is_decided_on_again(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        assert [await lab.chosen(server("s1")), await lab.chosen(server("s1"))] == ["a", "a"]

    run(story)


@pytest.mark.parametrize("settings", [Settings(), ROOM], ids=["room", "number"])
def test_nobody_is_refused_because_of_it(run: Run, settings: Settings) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        found = await in_turn(lab, *(server(f"s{n}", flavor=WHOLE) for n in range(3)))
        assert found == ["a", "b", "a"], "the claim of the third may be refused, but nobody knows yet"

    run(story, settings)


def test_several_at_once_are_promised_and_refused_because_of_nobody(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b", "c")
        pair = [server(name, flavor=WHOLE) for name in ("s1", "s2")]
        await lab.scheduler.place_many(pair, ["cell1"])
        assert await lab.chosen(server("s3", flavor=WHOLE)) == "c"
        three = [server(f"t{n}", flavor=WHOLE) for n in range(3)]
        placings = await lab.scheduler.place_many(three, ["cell1"])
        assert [placing.decision.chosen.host for placing in placings if placing.decision.chosen] == ["a", "b", "c"]

    run(story)


def test_several_of_which_one_finds_no_host_are_promised_nothing(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        await lab.scheduler.place_many([server(f"t{n}", flavor=WHOLE) for n in range(3)], ["cell1"])
        assert lab.scheduler._promises.outstanding() == {}

    run(story)


def test_a_dry_run_promises_nothing_and_counts_what_others_were_promised(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        for _ in range(2):
            placing = await lab.scheduler.place(server("dry"), ["cell1"], rehearsing=True)
            assert placing.decision.chosen is not None and placing.decision.chosen.host == "a"
        assert await lab.chosen(server("s1")) == "a"
        placing = await lab.scheduler.place(server("dry"), ["cell1"], rehearsing=True)
        assert placing.decision.chosen is not None and placing.decision.chosen.host == "b"

    run(story)


@pytest.mark.parametrize(("policy", "found"), [("affinity", ["a", "a", "a"]), ("anti-affinity", ["a", "b", "a"])])
def test_of_a_group(run: Run, policy: str, found: list[str]) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        rule = GroupRule("g", policy, 1)
        assert await in_turn(lab, *(server(f"s{n}", group=rule) for n in range(3))) == found

    run(story)


def test_another_group_does_not_bind(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        rules = [GroupRule(name, "affinity", 1) for name in ("g", "h")]
        assert await in_turn(lab, *(server(rule.group, group=rule) for rule in rules)) == ["a", "b"]

    run(story)


def test_of_hardware(run: Run) -> None:
    """Its CPUs are counted by placement too, but only the host's cells are too small for a second one."""
    flavor = Flavor(name="pinned", vcpus=2, memory_mb=128, disk_gb=1, hardware=pinned(2))

    async def story(lab: Lab) -> None:
        for name in ("a", "b"):
            ids = await add_host(lab.stores, name)
            sizes = {"PCPU": (64, 0, 1.0), "MEMORY_MB": (4096, 0, 1.0), "DISK_GB": (100, 0, 1.0)}
            await set_inventory(lab.stores.placement, ids["provider_id"], sizes)
            await tell_hardware(lab, name)
        assert await in_turn(lab, *(server(f"s{n}", flavor=flavor) for n in range(3))) == ["a", "b", "a"]

    run(story, Settings(filter_scheduler=FilterOptions(enabled_filters=("NUMATopologyFilter",), **NO_WEIGHTS)))


async def tell_hardware(lab: Lab, name: str) -> None:
    """One cell with two CPUs."""
    await lab.stores.cell("cell1").write(lambda tx: note_hardware(tx, name, to_json(host(cell(0, 2))), []))


def test_the_books_are_as_they_were_after_a_decision(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a", "b")
        await in_turn(lab, *(server(f"s{n}") for n in range(4)))
        hosts, snapshot = lab.scheduler._host_cache.hosts, lab.scheduler._snapshot
        assert not hosts.busy.any() and not hosts.servers.any() and not hosts.unclaimed
        assert not any(columns.table[1].any() for columns in snapshot.classes.values())

    run(story)


def test_a_promised_host_may_be_gone(run: Run) -> None:
    async def story(lab: Lab) -> None:
        ids = await add_host(lab.stores, "a")
        assert await lab.chosen(server("s1")) == "a"
        await add_hosts(lab, "b")
        await remove_provider(lab.stores.placement, ids["provider_id"])
        lab.clock.at += 2
        assert await lab.chosen(server("s2")) == "b"

    run(story)


def test_a_decision_tells_what_it_counted(run: Run) -> None:
    async def story(lab: Lab) -> None:
        await add_hosts(lab, "a")
        await lab.chosen(server("s1"))
        placing = await lab.scheduler.place(server("s2"), ["cell1"])
        sentences = [verdict.sentence for verdict in placing.decision.verdicts if verdict.filter == "capacity"]
        assert sentences[0].startswith("needs 1 VCPU, 7 free of 8")
        assert decision_lines(msgspec.to_builtins(placing.decision)) == [
            "chosen: a (weight 0); the only host that fits",
            "a  passes every filter",
            "servers counted there that had not claimed yet: 1 on a",
        ]

    run(story)
