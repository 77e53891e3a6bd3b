"""Draining hosts and returning to them, on a simulated cloud."""

import asyncio

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.cancel import cancel
from kilonova.hosts.states import declare_down, disable, enable, find_host
from kilonova.operations import REGISTRY
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.placement.capacity import HostCandidate
from kilonova.placement.claims import claim
from kilonova.placement.fence import Fence
from kilonova.placement.inventories import is_accepting
from kilonova.settings import ConductorOptions
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.settings import simulated

ONE_AT_ONCE = simulated(conductor=ConductorOptions(evacuations_per_destination=1))
LARGE = {"name": "large", "vcpus": 2, "memory_mb": 1024, "disk_gb": 20, "id": "9"}


def ask(cloud, kind, *hosts, **bulk):
    accepted = cloud.do(lambda engine: ask_for_hosts(engine, kind, hosts, cloud.cause(), None, Bulk(**bulk)))
    return next(iter(accepted.values())).operation_id


def account(cloud, operation):
    return msgspec.json.decode(cloud.operation(operation)["facts"])["account"]


def stands(cloud, host):
    row = next(row for row in cloud.records().table("hosts") if row["name"] == host)
    return "draining" if row["draining"] else "returning" if row["returning"] else "open"


def test_a_host_is_drained_and_its_servers_come_home(cloud):
    cloud = cloud(hosts=3)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(3)]
    stopped = cloud.make("off", host="host1")[0]
    cloud.submit("stop", stopped)
    cloud.loop.run_for(30.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(200.0)
    assert cloud.operation(drained)["state"] == "done"
    assert account(cloud, drained)["sentence"] == "4 moved; 0 failed; 0 impossible"
    assert "host1" not in {cloud.server(server)["host"] for server in [*servers, stopped]}
    assert {cloud.server(server)["vm_state"] for server in servers} == {"active"}
    assert cloud.server(stopped)["vm_state"] == "stopped"
    assert stands(cloud, "host1") == "draining" and check(cloud) == []
    new, _ = cloud.make("new")
    assert cloud.server(new)["host"] != "host1"

    home = ask(cloud, "return_host", "host1")
    cloud.loop.run_for(200.0)
    assert account(cloud, home)["sentence"] == "4 moved; 0 failed; 0 impossible"
    assert {cloud.server(server)["host"] for server in [*servers, stopped]} == {"host1"}
    assert cloud.server(new)["host"] != "host1" and stands(cloud, "host1") == "open" and check(cloud) == []


def test_those_that_moved_on_were_resized_or_deleted_stay_and_are_named(cloud):
    """H7."""
    cloud = cloud(hosts=3)
    names = ("home", "moved", "deleted", "resized")
    server = {name: cloud.make(name, host="host1")[0] for name in names}
    cloud.loop.run_for(5.0)
    ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(200.0)
    cloud.submit("delete", server["deleted"])
    cloud.submit("migrate", server["moved"])
    cloud.submit("resize", server["resized"], flavor=LARGE)
    cloud.loop.run_for(60.0)
    for name in ("moved", "resized"):
        cloud.submit("confirm_resize", server[name])
    cloud.loop.run_for(60.0)
    left = {name: cloud.server(server[name])["host"] for name in ("moved", "resized")}
    home = ask(cloud, "return_host", "host1")
    cloud.loop.run_for(200.0)
    told = account(cloud, home)
    assert told["moved"] == 1 and cloud.server(server["home"])["host"] == "host1"
    assert told["refused"][server["deleted"]] == "it was deleted since"
    for name in ("moved", "resized"):
        assert told["refused"][server[name]].startswith("it has moved since, from host")
        assert cloud.server(server[name])["host"] == left[name]
    assert check(cloud) == []


def test_who_left_by_a_resize_does_not_come_home(cloud):
    """Its owner wanted that, and may have a reason to be elsewhere."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.submit("resize", server, flavor=LARGE)
    cloud.loop.run_for(60.0)
    cloud.submit("confirm_resize", server)
    cloud.loop.run_for(60.0)
    ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(60.0)
    home = ask(cloud, "return_host", "host1")
    cloud.loop.run_for(100.0)
    assert account(cloud, home)["refused"] == {server: "it left host1 by a resize: its owner wanted that"}
    assert cloud.server(server)["host"] == "host2"


def test_a_drain_without_room_moves_nothing_and_opens_the_host_again(cloud):
    """H1."""
    cloud = cloud(hosts=2, vcpus=2)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(2)]
    cloud.make("other", host="host2")
    drained = ask(cloud, "drain_host", "host1", on_misfit="refuse")
    cloud.loop.run_for(100.0)
    row = cloud.operation(drained)
    assert row["state"] == "undone" and "1 of 2 servers fit nowhere" in msgspec.json.decode(row["error"])["message"]
    assert {cloud.server(server)["host"] for server in servers} == {"host1"}
    assert stands(cloud, "host1") == "open" and check(cloud) == []
    skipping = ask(cloud, "drain_host", "host1", on_misfit="skip")
    cloud.loop.run_for(100.0)
    assert account(cloud, skipping)["moved"] == 1 and len(account(cloud, skipping)["impossible"]) == 1
    assert stands(cloud, "host1") == "draining"


def test_a_host_that_was_drained_before_stays_closed_when_a_later_drain_is_undone(cloud):
    cloud = cloud(hosts=3, vcpus=2)
    for name, host in (("a", "host2"), ("b", "host2"), ("c", "host3")):
        cloud.make(name, host=host)
    ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(100.0)
    assert stands(cloud, "host1") == "draining"
    both = ask(cloud, "drain_host", "host1", "host2", on_misfit="refuse")
    cloud.loop.run_for(100.0)
    assert cloud.operation(both)["state"] == "undone"
    assert {host: stands(cloud, host) for host in ("host1", "host2")} == {"host1": "draining", "host2": "open"}
    assert check(cloud) == []


def test_a_drain_that_is_cancelled_says_what_moved_and_opens_the_host(cloud):
    """H2: children end, and no claim is left behind."""
    cloud = cloud(hosts=2, boot_seconds=20.0, settings=ONE_AT_ONCE)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(3)]
    cloud.loop.run_for(30.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(15.0)
    cloud.do(lambda engine: cancel(engine, engine.world.db.cell("cell1"), drained, "alice"))
    cloud.loop.run_for(200.0)
    told = account(cloud, drained)
    assert cloud.operation(drained)["state"] == "cancelled"
    assert told["moved"] == 1 and set(told["not_begun"].values()) == {"it was cancelled before"}
    assert sorted(cloud.server(server)["host"] for server in servers) == ["host1", "host1", "host2"]
    assert {cloud.server(server)["vm_state"] for server in servers} == {"active"}
    assert stands(cloud, "host1") == "open" and check(cloud) == []


def test_servers_are_stopped_where_they_are_and_started_by_the_return(cloud):
    cloud = cloud(hosts=2)
    running = [cloud.make(f"s{n}", host="host1")[0] for n in range(2)]
    off, touched = cloud.make("off", host="host1")[0], cloud.make("touched", host="host1")[0]
    cloud.submit("stop", off)
    cloud.loop.run_for(30.0)
    drained = ask(cloud, "drain_host", "host1", by="stop")
    cloud.loop.run_for(60.0)
    assert account(cloud, drained)["sentence"] == "0 moved; 3 stopped; 0 failed; 0 impossible"
    assert {cloud.server(server)["vm_state"] for server in [*running, off, touched]} == {"stopped"}
    cloud.submit("start", touched)
    cloud.loop.run_for(20.0)
    cloud.submit("stop", touched)
    cloud.loop.run_for(20.0)
    home = ask(cloud, "return_host", "host1")
    cloud.loop.run_for(60.0)
    assert account(cloud, home)["sentence"] == "0 moved; 2 started; 0 failed; 0 impossible"
    assert {cloud.server(server)["vm_state"] for server in running} == {"active"}
    assert {cloud.server(server)["vm_state"] for server in (off, touched)} == {"stopped"}, "their owners' word"


def test_a_server_that_was_on_its_way_is_drained_too(cloud):
    """The snapshot is taken after the host was closed, and after those that had a claim there have come."""
    cloud = cloud(hosts=2, boot_seconds=20.0)
    server, _ = cloud.make("late", host="host1", wait=3.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(200.0)
    assert account(cloud, drained)["moved"] == 1 and cloud.server(server)["host"] == "host2" and check(cloud) == []


def test_a_busy_server_is_waited_for(cloud):
    cloud = cloud(hosts=2, boot_seconds=10.0)
    server, _ = cloud.make("busy", host="host1")
    cloud.loop.run_for(20.0)
    cloud.submit("hard_reboot", server)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(100.0)
    assert account(cloud, drained)["moved"] == 1 and cloud.server(server)["host"] == "host2"


def test_an_owners_migration_that_waits_is_named(cloud):
    cloud = cloud(hosts=3)
    cloud.make("here", host="host1")
    away, _ = cloud.make("away", host="host1")
    cloud.submit("migrate", away, host="host2")
    cloud.loop.run_for(60.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(100.0)
    told = account(cloud, drained)
    assert told["moved"] == 1 and "confirms or reverts" in told["refused"][away]


def test_who_may_not_be_drained_or_returned(cloud):
    cloud = cloud(hosts=3)
    cloud.hardware.switch_power("host1", False)
    cloud.do(lambda engine: declare_down(engine, "host1"))
    for kind in ("drain_host", "return_host"):
        with pytest.raises(Refused, match=r"host1 was declared down\. Evacuate it if it is dead"):
            ask(cloud, kind, "host1")
    cloud.do(lambda engine: disable(engine, "host2"))
    with pytest.raises(Refused, match="host host2: it is disabled; enable it first"):
        ask(cloud, "return_host", "host2")


def test_one_thing_at_a_time(cloud):
    cloud = cloud(hosts=3, boot_seconds=30.0)
    cloud.make("a", host="host1")
    cloud.loop.run_for(40.0)
    drained = ask(cloud, "drain_host", "host1")
    assert ask(cloud, "drain_host", "host1") == drained
    with pytest.raises(Refused, match=r"operation .* \(drain_host\) is about host1; wait for it, or cancel it"):
        ask(cloud, "return_host", "host1")
    with pytest.raises(Refused, match="drains it; cancel that first"):
        cloud.do(lambda engine: enable(engine, "host1", drained=True))
    cloud.loop.run_for(200.0)
    cloud.do(lambda engine: enable(engine, "host1", drained=True))
    cloud.loop.run_for(30.0)
    assert stands(cloud, "host1") == "open"


def test_a_drain_that_begins_while_its_host_is_opened_keeps_it_closed(cloud, monkeypatch):
    """What was read before the transaction says nothing: the drain may have closed the host since."""
    cloud = cloud(hosts=3, boot_seconds=30.0)
    cloud.make("a", host="host1")
    cloud.loop.run_for(40.0)

    async def find_slowly(engine, host):
        found = await find_host(engine, host)
        await engine.world.clock.sleep(5.0)
        return found

    monkeypatch.setattr("kilonova.hosts.states.find_host", find_slowly)
    opening = cloud.ask(lambda engine: enable(engine, "host1", drained=True))
    cloud.loop.run_for(1.0)
    ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(10.0)
    with pytest.raises(Refused, match="drains it; cancel that first"):
        opening.result()
    assert stands(cloud, "host1") == "draining"


def test_a_host_that_dies_while_it_is_drained_is_evacuated(cloud):
    cloud = cloud(hosts=3, boot_seconds=20.0, settings=ONE_AT_ONCE)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(3)]
    cloud.loop.run_for(30.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(5.0)
    cloud.hardware.switch_power("host1", False)
    cloud.do(lambda engine: declare_down(engine, "host1"))
    evacuated = ask(cloud, "evacuate_host", "host1")
    cloud.loop.run_for(400.0)
    assert cloud.operation(evacuated)["state"] == "done"
    assert "host1" not in {cloud.server(server)["host"] for server in servers}
    assert not cloud.operation(drained)["live"] and check(cloud, at_rest=False) == []


class Interrupted:
    """Something happens right after a step of `relocate` was done."""

    def __init__(self, name, then):
        step = REGISTRY["relocate"].step(name)
        self.work, self.then = step.do, then
        self.step = step

    def __enter__(self):
        async def do(host):
            result = await self.work(host)
            await self.then(host)
            return result

        object.__setattr__(self.step, "do", do)

    def __exit__(self, *_):
        object.__setattr__(self.step, "do", self.work)


def test_the_source_is_kept_while_the_destination_has_no_whole_disk(cloud):
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")

    async def lost(host):
        cloud.hardware.lose(host.host, server)

    with Interrupted("finish_resize", lost):
        drained = ask(cloud, "drain_host", "host1")
        cloud.loop.run_for(200.0)
    told = account(cloud, drained)
    assert told["moved"] == 0 and "has no complete disk" in told["failed"][server]
    assert (cloud.server(server)["host"], cloud.server(server)["vm_state"]) == ("host1", "active")
    assert check(cloud, at_rest=False) == []


def test_with_two_copies_it_stands_as_a_migrated_server(cloud):
    """Nobody evacuates it then: which of the copies counts is being decided."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")

    async def slow(host):
        await asyncio.sleep(10.0)

    with Interrupted("check_destination", slow):
        ask(cloud, "drain_host", "host1")
        cloud.loop.run_for(8.0)
        row = cloud.server(server)
        assert (row["vm_state"], row["host"]) == ("resized", "host2")
        with pytest.raises(Refused, match="vm_state resized"):
            cloud.submit("evacuate", server)
        cloud.loop.run_for(60.0)
    assert cloud.server(server)["vm_state"] == "active"
    (move,) = cloud.records().table("migrations")
    assert (move["status"], move["open"], move["source_host"], move["dest_host"]) == ("confirmed", 0, "host1", "host2")


def test_a_drained_host_refuses_claims_whoever_asks(cloud):
    """Also of somebody who chose it before it was closed (H3)."""
    cloud = cloud(hosts=2)
    ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(30.0)
    row = next(row for row in cloud.records().table("hosts") if row["name"] == "host1")
    assert not cloud.do(lambda engine: is_accepting(engine.world.db.placement, row["provider_id"]))


def test_a_migration_that_was_on_its_way_is_waited_for_and_named(cloud):
    """Its claim is older than the drain. It arrives, and then its owner has the word."""
    cloud = cloud(hosts=3, boot_seconds=10.0)
    server, _ = cloud.make("a", host="host2")
    cloud.loop.run_for(20.0)
    cloud.submit("migrate", server, host="host1")
    cloud.loop.run_for(2.0)
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(100.0)
    assert (cloud.server(server)["vm_state"], cloud.server(server)["host"]) == ("resized", "host1")
    assert "vm_state resized" in account(cloud, drained)["refused"][server]


def test_a_claim_of_somebody_else_on_a_drained_host_is_named(cloud):
    """It is no server of this cloud: after a while the drain goes on without it, and says so."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")
    row = next(row for row in cloud.records().table("hosts") if row["name"] == "host1")
    foreign = "11111111-1111-4111-8111-111111111111"
    wish = [HostCandidate(row["provider_id"], {"VCPU": 1})]
    fence = Fence(foreign, 1, 1)
    cloud.do(lambda engine: claim(engine.world.db.placement, fence, wish, project="p", user="u"))
    drained = ask(cloud, "drain_host", "host1")
    cloud.loop.run_for(300.0)
    assert account(cloud, drained)["moved"] == 1 and cloud.server(server)["host"] == "host2"
    assert "was not there when the drain was planned" in account(cloud, drained)["refused"][foreign]
