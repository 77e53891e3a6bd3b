"""Resize and cold migrate, confirm and revert seen from outside: a running cloud, asked through the Compute API.

| story | test |
|---|---|
| Z1 | tests/conversations/compute/server-resize.yaml; tests/clients |
| Z2 | test_z2_a_resize_is_taken_back |
| Z3 | test_z3_a_step_fails |
| Z4 | test_z4_the_program_is_killed_between_steps |
| Z5, Z6, Z10, Z14, Z16 | tests/unit/api/compute/test_moves.py |
| Z7 | test_z7_a_revert_over_the_quota |
| Z8 | test_z8_in_a_strict_affinity_group, test_z8_a_group_that_may_not_stay |
| Z9 | test_z9_as_many_resizes_at_once_as_there_is_room_for |
| Z11 | test_z11_no_disk_shrinks |
| Z12 | tests/conversations/compute/server-migrate.yaml |
| Z13 | test_z13_hosts_that_have_no_cpus_left_to_pin |
| Z15 | test_z15_both_copies_on_one_host |
| E18 | test_e18_resized_and_reverted_before_the_source_returns |
| A2 | test_a2_a_group_is_kept_apart_by_everything_at_once |
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.outside.operator import SECONDS, Operator
from tests.outside.test_evacuate import TINY
from tests.support.program import until

LOCAL = {"OS-FLV-EXT-DATA:ephemeral": 1, "swap": 64}
MORE = {"OS-FLV-EXT-DATA:ephemeral": 2, "swap": 128}
MOVED = [
    *("conductor_migrate_server", "cold_migrate"),
    *("compute_prep_resize", "compute_resize_instance", "compute_finish_resize"),
]


def in_group(operator: Operator, policy: str, name: str) -> dict[str, Any]:
    """The hints of its members."""
    body = {"server_group": {"name": name, "policy": policy}}
    return {"group": operator.change("POST", "/compute/v2.1/os-server-groups", body)["server_group"]["id"]}


def drop(operator: Operator, *servers: str, group: dict[str, Any] | None = None) -> None:
    for server in servers:
        operator.delete(server)
    if group is not None:
        operator.change("DELETE", f"/compute/v2.1/os-server-groups/{group['group']}")


def test_z2_a_resize_is_taken_back(local: Operator) -> None:
    before, after = local.flavor("z2", 1, 512, 1, **LOCAL), local.flavor("z2-more", 2, 1024, 3, **MORE)
    server = local.create("z2", "host1", flavorRef=before)
    local.write(server, "mine")
    local.write(server, "cache", "ephemeral0")
    held, ports = local.allocations(server), local.ports(server)
    host = local.resized(server, after)
    assert host != "host1" and local.flavor_of(server) == after
    assert "mine" in local.console(server), "the data came along"
    assert local.disks(server) == "KILONOVA-DISKS root=3G ephemeral0=2G:blank+cache swap=128M:blank"
    assert local.allocations(server) == {host: {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 6}}
    action, message, events = local.action(server)
    assert (action, message, [event[0] for event in events]) == ("resize", None, MOVED), "in this order"
    local.write(server, "later")
    local.reverted(server, "host1")
    assert local.flavor_of(server) == before and local.statuses(server) == ["reverted"]
    assert (local.allocations(server), local.ports(server)) == (held, ports)
    assert "mine" in local.console(server) and "later" not in local.console(server)
    assert local.disks(server) == "KILONOVA-DISKS root=1G ephemeral0=1G:blank+cache swap=64M:blank"
    drop(local, server)


FAILURES = [
    ("host2", "ensure_defined", "compute_prep_resize"),
    ("host1", "send_disk", "compute_resize_instance"),
    ("host2", "ensure_disk_size", "compute_finish_resize"),
]


@pytest.mark.parametrize(("host", "verb", "event"), FAILURES, ids=["prep", "copy", "finish"])
def test_z3_a_step_fails(local: Operator, host: str, verb: str, event: str) -> None:
    server = local.create("z3", "host1")
    local.write(server, "mine")
    held, ports, line = local.allocations(server), local.ports(server), local.console(server)
    local.disable("host3")
    local.switch(host, fail={"verb": verb, "times": 1, "how": "refuse"})
    operation = local.move(server, resize={"flavorRef": local.flavor("z3-more", 2, 512, 2)})
    assert local.http.ended(operation)["state"] == "undone"
    assert local.state(server) == ("ACTIVE", None, "host1") and local.flavor_of(server) == "m1.tiny"
    assert (local.allocations(server), local.ports(server), local.statuses(server)) == (held, ports, ["error"])
    assert local.used("host2")["VCPU"] == 0, "nothing is held where it did not go"
    action, message, events = local.action(server)
    assert (action, message, events[-1][:2]) == ("resize", "Error", (event, "Error"))
    if verb == "ensure_defined":
        assert local.console(server) == line, "its guest was not even stopped"
    else:
        until(lambda: "mine" in local.console(server), SECONDS, "its guest runs again")
    assert local.resized(server, "z3-more") == "host2", "the next one works"
    local.confirmed(server, "host2")
    assert "mine" in local.console(server) and local.flavor_of(server) == "z3-more"
    drop(local, server)


STEPS = [("host1", "send_disk", "resize_migrating"), ("host2", "ensure_power", "resize_finish")]


@pytest.mark.parametrize(("host", "verb", "task_state"), STEPS, ids=["copy", "finish"])
def test_z4_the_program_is_killed_between_steps(small: Operator, host: str, verb: str, task_state: str) -> None:
    """kill -9 of everything at once, api, conductor and hosts: in a step of the move, and in its end."""
    server = small.create("z4", "host1")
    small.write(server, "mine")
    small.switch(host, fail={"verb": verb, "times": 100, "how": "crash"})  # until the program is started again
    operation = small.move(server, migrate={"host": "host2"})
    small.at_work(server, task_state)
    small.kill_and_start()
    small.settled(server, "host2", "VERIFY_RESIZE")
    assert small.http.operation(operation)["state"] == "done"
    assert small.moves(server) == [("finished", "host1", "host2")]
    small.write(server, "later")
    end, home, status = (
        ("revertResize", "host1", "reverted") if host == "host1" else ("confirmResize", "host2", "confirmed")
    )
    small.move(server, **{end: None})
    small.kill_and_start()
    small.settled(server, home)
    assert small.statuses(server) == [status] and small.allocations(server) == {home: TINY}
    if end == "revertResize":
        assert "mine" in small.console(server) and "later" not in small.console(server)
    else:
        assert "mine" in small.console(server)
    drop(small, server)


def test_z7_a_revert_over_the_quota(local: Operator) -> None:
    quotas = f"/compute/v2.1/os-quota-sets/{local.project}"
    server = local.create("z7", "host1", flavorRef=local.flavor("z7-wide", 4, 512, 1))
    host = local.resized(server, "1")
    limit = local.get(f"{quotas}/detail")["quota_set"]["cores"]
    local.change("PUT", quotas, {"quota_set": {"cores": limit["in_use"] + 2}})
    state, held = local.state(server), local.allocations(server)
    refused = local.act(server, revertResize=None)
    assert refused.status == 403 and b"cores" in refused.body, refused.body
    assert (local.state(server), local.allocations(server)) == (state, held) == (state, {host: TINY})
    assert local.flavor_of(server) == "m1.tiny" and local.statuses(server) == ["finished"]
    planned = local.ask("POST", "/kilonova/v1/plans", {"operation": "revert_resize", "server": server})
    assert (planned.status, planned.json["error"]["code"]) == (403, "quota_exceeded"), "the dry run says so, too"
    local.change("PUT", quotas, {"quota_set": {"cores": limit["limit"]}})
    local.reverted(server, "host1")
    assert local.flavor_of(server) == "z7-wide" and local.used("host1")["VCPU"] == 4
    drop(local, server)


def test_z8_in_a_strict_affinity_group(small: Operator) -> None:
    group, vast = in_group(small, "affinity", "z8"), small.flavor("z8-vast", 5, 512, 1)
    first, second = (small.create(name, "host1", hints=group) for name in ("z8a", "z8b"))
    assert small.resized(first, small.flavor("z8-more", 3, 512, 1)) == "host1"
    assert small.used("host1")["VCPU"] == 1 + 3 + 1, "its old flavor, its new one, and the other server"
    operation = small.move(second, resize={"flavorRef": vast})
    assert small.http.ended(operation)["state"] == "undone"
    assert small.state(second) == ("ACTIVE", None, "host1") and small.flavor_of(second) == "m1.tiny"
    assert "No valid host" in str(small.action(second)[2])
    small.confirmed(first, "host1")
    assert small.used("host1")["VCPU"] == 3 + 1
    drop(small, first, second, group=group)


def test_z8_a_group_that_may_not_stay(local: Operator) -> None:
    """Without the option there is nowhere to go."""
    group = in_group(local, "affinity", "z8n")
    first, second = (local.create(name, "host1", hints=group) for name in ("z8na", "z8nb"))
    operation = local.move(first, resize={"flavorRef": local.flavor("z8-more", 3, 512, 1)})
    assert local.http.ended(operation)["state"] == "undone"
    assert local.state(first) == ("ACTIVE", None, "host1") and local.used("host1")["VCPU"] == 2
    assert "allow_resize_to_same_host" in str(local.http.get(f"/operations/{operation}/explain"))
    drop(local, first, second, group=group)


def test_z9_as_many_resizes_at_once_as_there_is_room_for(small: Operator) -> None:
    """Four servers on one host, and four hosts that have room for one each: whoever finds its destination full by the
    time of its claim goes to the next."""
    more, servers = small.flavor("z9-more", 5, 512, 1), [small.create(f"z9{n}", "host1") for n in range(4)]
    for server in servers:
        small.move(server, resize={"flavorRef": more})
    for server in servers:
        small.until(server, lambda state: state[:2] == ("VERIFY_RESIZE", None))
    assert sorted(small.state(server)[2] for server in servers) == ["host2", "host3", "host4", "host5"]
    assert [small.used(f"host{n}")["VCPU"] for n in range(1, 6)] == [4, 5, 5, 5, 5]
    for server in servers:
        small.reverted(server, "host1")
    assert [small.used(f"host{n}")["VCPU"] for n in range(1, 6)] == [4, 0, 0, 0, 0]
    drop(small, *servers)


def test_z11_no_disk_shrinks(local: Operator) -> None:
    """Known before anything is done: by the API and by the dry run, with the same words."""
    large, thin = local.flavor("z11", 1, 512, 3, **MORE), local.flavor("z11-thin", 1, 512, 2, **MORE)
    server = local.create("z11", "host1", flavorRef=large)
    less = {
        thin: "root disk would shrink from 3 GB to 2 GB",
        "z11-bare": "ephemeral disks would shrink from 2 GB to 0 GB",
    }
    local.flavor("z11-bare", 1, 512, 3)
    for flavor, words in less.items():
        refused = local.act(server, resize={"flavorRef": flavor})
        planned = local.ask("POST", "/kilonova/v1/plans", {"operation": "resize", "server": server, "flavor": flavor})
        assert (refused.status, planned.status) == (400, 400) and words in str(refused.body), refused.body
        assert planned.json["error"]["message"] == refused.json["badRequest"]["message"]
    assert local.state(server) == ("ACTIVE", None, "host1") and local.moves(server) == []
    assert [one["operation"] for one in local.get_operations(server)] == ["create"], "nothing was begun"
    drop(local, server)


def test_z13_hosts_that_have_no_cpus_left_to_pin(small: Operator) -> None:
    """Each host has four CPUs to pin and only two of them in one cell: placement has room for two such servers, and the
    host itself gives its cell to one."""
    pair = small.flavor("z13-pair", 2, 512, 1, specs={"hw:cpu_policy": "dedicated"})
    moved = [small.create(f"z13{n}", "host1") for n in range(2)]
    small.disable("host5")
    for server in moved:
        small.move(server, resize={"flavorRef": pair})
    wish = {"name": "z13c", "flavorRef": pair, "imageRef": small.images["cirros-sim"], "networks": "none"}
    made = str(small.change("POST", "/compute/v2.1/servers", {"server": wish})["server"]["id"])
    for server in moved:
        small.until(server, lambda state: state[:2] == ("VERIFY_RESIZE", None))
    small.until(made, lambda state: state[:2] == ("ACTIVE", None))
    hosts = [small.state(server)[2] for server in (*moved, made)]
    assert len(set(hosts)) == 3 and "host5" not in hosts, "none shares a cell with another"
    for server in (*moved, made):
        assert small.flavor_of(server) == pair
        assert [held["PCPU"] for held in small.allocations(server).values()] == [2]
    small.confirmed(moved[0], hosts[0])
    small.reverted(moved[1], "host1")
    assert small.allocations(moved[1]) == {"host1": TINY}
    drop(small, *moved, made)


def test_z15_both_copies_on_one_host(small: Operator) -> None:
    """The cleaning of one copy never touches the other, which runs."""
    more = small.flavor("z15-more", 2, 512, 2)
    small.disable("host2", "host3", "host4", "host5")
    confirmed, reverted = small.create("z15c", "host1"), small.create("z15r", "host1")
    for server in (confirmed, reverted):
        small.write(server, "mine")
        assert small.resized(server, more) == "host1"
        small.write(server, "later")
    running = small.console(confirmed)
    assert small.used("host1")["VCPU"] == 2 * (1 + 2)
    small.confirmed(confirmed, "host1")
    assert small.console(confirmed) == running, "it was not even restarted"
    small.switch("host1", power="off")
    small.back("host1")
    until(lambda: "later" in small.console(confirmed), SECONDS, "its disk is whole")
    small.reverted(reverted, "host1")
    assert "mine" in small.console(reverted) and "later" not in small.console(reverted)
    assert small.used("host1")["VCPU"] == 2 + 1
    drop(small, confirmed, reverted)


def test_e18_resized_and_reverted_before_the_source_returns(local: Operator) -> None:
    server = local.create("e18", "host1")
    local.dead("host1")
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    assert local.resized(server, local.flavor("e18-more", 2, 1024, 2)) == "host3"
    more = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 2}
    assert local.allocations(server) == {"host1": TINY, "host3": more}, "the dead host's share is held"
    local.reverted(server, "host2")
    assert local.allocations(server) == {"host1": TINY, "host2": TINY}
    local.back("host1")
    assert local.allocations(server) == {"host2": TINY}
    assert [local.used(host)["VCPU"] for host in ("host1", "host2", "host3")] == [0, 1, 0]
    drop(local, server)


def test_a2_a_group_is_kept_apart_by_everything_at_once(small: Operator) -> None:
    """A dead host is evacuated, another server is moved and a third one is made at the same moment; there are just as
    many hosts as they need. A server counts on both of its hosts until its move is confirmed."""
    group = in_group(small, "anti-affinity", "a2")
    evacuated, moved = small.create("a2a", "host1", hints=group), small.create("a2b", "host2", hints=group)
    small.dead("host1")
    small.evacuate(evacuated)
    small.move(moved, migrate=None)
    wish = {"name": "a2c", "flavorRef": "1", "imageRef": small.images["cirros-sim"], "networks": "none"}
    body = {"server": wish, "os:scheduler_hints": group}
    made = str(small.change("POST", "/compute/v2.1/servers", body)["server"]["id"])
    for server, status in ((evacuated, "ACTIVE"), (moved, "VERIFY_RESIZE"), (made, "ACTIVE")):
        small.until(server, lambda state, status=status: state[:2] == (status, None))  # type: ignore[misc]
    hosts = {small.state(server)[2] for server in (evacuated, moved, made)}
    assert hosts == {"host3", "host4", "host5"}, "neither the dead host nor the one that a revert would return to"
    small.reverted(moved, "host2")
    drop(small, evacuated, moved, made, group=group)
