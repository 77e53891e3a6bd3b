"""Evacuation seen from outside: a running cloud, asked through the Compute API, with hosts switched off and on.

| story | test |
|---|---|
| E1 | test_e1_the_host_dies_and_the_disk_is_made_again |
| E2 | test_e2_the_host_dies_and_the_shared_disk_is_kept |
| E3 | test_e3_evacuated_while_the_dead_host_was_at_work, test_e3_evacuated_while_the_dead_host_was_sending_its_disk |
| E4 | test_e4_the_source_returns_while_the_destination_builds |
| E5 | test_e5_the_evacuation_fails_and_the_source_returns |
| E6 | test_e6_a_failed_evacuation_a_rebuild_and_a_restart_of_the_source |
| E7 | test_e7_the_destination_dies_and_another_is_tried, test_e7_the_destination_dies_and_the_source_returns |
| E8 | test_e8_the_source_reconnects_without_a_restart |
| E9 | test_e9_deleted_before_the_source_returns |
| E10 | test_e10_the_service_of_the_dead_source_is_deleted |
| E11 | test_e11_a_network_split_and_an_operator_who_forces_down |
| E13 | test_e13_the_only_member_of_an_affinity_group, test_e13_the_group_was_deleted_before |
| E14 | tests/conversations/compute/server-evacuate.yaml; test_e14_the_form_decides_how_it_arrives |
| E15 | test_e15_asked_for_twice |
| E17 | test_e17_no_host_fits |
| E19 | test_e19_an_observer_that_heard_nobody |

What the `openstack` and `nova` commands make of it is in tests/clients.
"""

from __future__ import annotations

import signal
import time

import pytest

from tests.outside.operator import SECONDS, Operator
from tests.support.program import until

TINY = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
HOSTS = ("host1", "host2", "host3")
EVENTS = [("rebuild_server", "Success"), ("compute_rebuild_instance", "Success")]


def image_of(operator: Operator, name: str = "cirros-sim") -> str:
    return f"root=image:{operator.images[name]}"


def test_e1_the_host_dies_and_the_disk_is_made_again(local: Operator) -> None:
    """Silence alone proves it. The dry run says before what becomes of the disks."""
    server, volume = local.create("e1", "host1"), local.volume("e1-data")
    local.attach(server, volume)
    local.write(server, "mine")
    local.write(server, "data", volume)
    (port,) = local.ports(server)
    local.switch("host1", power="off")
    local.is_down("host1")
    plan = local.plan("evacuate", server=server, host="host2", accept_unfenced=True)["outlook"]
    assert [(disk["disk"], disk["fate"]) for disk in plan["disks"]] == [("root", "re-created"), ("/dev/vdb", "kept")]
    assert (plan["proven_by"], plan["claims"], plan["left"][0]["host"]) == ("silence", {"host2": TINY}, "host1")
    local.evacuate(server, host="host2")
    seen = local.settled(server, "host2")
    assert ("REBUILD", "rebuild_spawning", "host1") in seen
    assert {status for status, _, _ in seen} <= {"ACTIVE", "REBUILD"}
    assert local.moves(server) == [("done", "host1", "host2")]
    assert local.allocations(server) == {"host1": TINY, "host2": TINY}, "the source's share is held until it is clean"
    assert local.ports(server) == [(port[0], port[1], "host2")]
    line = local.console(server)
    assert f"boot=1 {image_of(local)} volumes=" in line and "data" in line and "mine" not in line
    action, message, events = local.action(server)
    assert (action, message, [event[:2] for event in events]) == ("evacuate", None, EVENTS)
    local.back("host1")
    local.completed(server)
    assert local.allocations(server) == {"host2": TINY}
    assert local.settled(server, "host2") == [("ACTIVE", None, "host2")]
    assert local.console(server) == line, "it was not touched when its old host returned"
    local.delete(server)
    local.volume_is(volume, "available")


def test_e2_the_host_dies_and_the_shared_disk_is_kept(shared: Operator) -> None:
    server = shared.create("e2", "host1")
    shared.write(server, "mine")
    shared.dead("host1")
    plan = shared.plan("evacuate", server=server, accept_unfenced=True)["outlook"]
    assert (plan["disks"], plan["proven_by"]) == ([{"disk": "root", "fate": "kept"}], "forced_down")
    shared.evacuate(server, host="host2")
    shared.settled(server, "host2")
    assert shared.console(server).split("root=")[1].split(" ")[0].endswith("mine")
    shared.back("host1")
    shared.completed(server)
    assert shared.console(server).split("root=")[1].split(" ")[0].endswith("mine"), "the source did not remove it"
    shared.delete(server)


@pytest.mark.parametrize("work", ["rebuild", "reboot", "os-stop"])
def test_e3_evacuated_while_the_dead_host_was_at_work(local: Operator, work: str) -> None:
    server = local.create("e3", "host1")
    local.write(server, "mine")
    bodies = {"rebuild": {"imageRef": local.images["cirros-sim-alt"]}, "reboot": {"type": "HARD"}, "os-stop": None}
    local.switch("host1", link="cut")  # it hears of nothing any more
    found = local.act(server, **{work: bodies[work]})
    assert found.status == 202, found.body
    interrupted = found.headers["X-Kilonova-Operation"]
    local.switch("host1", power="off")
    assert local.force_down("host1").status == 200
    operation = local.evacuate(server, host="host2")
    local.until(server, lambda state: state[1] is None and state[2] == "host2")
    assert local.http.operation(operation)["state"] == "done"
    assert local.http.operation(interrupted)["state"] in ("superseded", "undone", "failed")
    shown = local.server(server)
    assert shown["image"]["id"] == local.images["cirros-sim"], "the interrupted rebuild was taken back"
    assert local.allocations(server).keys() == {"host1", "host2"}
    local.back("host1")
    local.completed(server)
    assert local.allocations(server) == {"host2": TINY}
    local.delete(server)


def test_e3_evacuated_while_the_dead_host_was_sending_its_disk(local: Operator) -> None:
    """A cold migration to host2: what it claimed there is released, or it is where the server goes."""
    server = local.create("e3m", "host1")
    local.switch("host1", fail={"verb": "send_disk", "times": 1, "how": "crash"})
    migrate = local.submit("migrate", server=server, host="host2")
    local.at_work(server, "resize_migrating")
    local.dead("host1")
    operation = local.evacuate(server, host="host3")
    local.settled(server, "host3")
    assert local.http.operation(operation)["state"] == "done"
    assert local.http.operation(migrate)["state"] in ("superseded", "undone", "failed")
    assert local.allocations(server).keys() == {"host1", "host3"}
    local.back("host1")
    local.completed(server)
    assert local.allocations(server) == {"host3": TINY}
    local.delete(server)


def test_e4_the_source_returns_while_the_destination_builds(local: Operator) -> None:
    server = local.create("e4", "host1")
    local.write(server, "mine")
    local.switch("host1", power="off")
    local.is_down("host1")
    local.evacuate(server, host="host2")
    local.at_work(server, "rebuild_spawning")
    local.switch("host1", power="on")
    seen = local.settled(server, "host2")
    assert {status for status, _, _ in seen} <= {"ACTIVE", "REBUILD"}
    local.completed(server)
    assert local.host("host1")["owed"] == []
    assert "boot=1" in local.console(server) and "mine" not in local.console(server)
    assert local.allocations(server) == {"host2": TINY}
    local.delete(server)


def test_e5_the_evacuation_fails_and_the_source_returns(local: Operator) -> None:
    server = local.create("e5", "host1")
    local.write(server, "mine")
    (port,) = local.ports(server)
    local.dead("host1")
    local.disable("host3")
    local.switch("host2", fail={"verb": "ensure_disk", "times": 1, "how": "refuse"})
    operation = local.evacuate(server)
    assert local.http.ended(operation)["state"] in ("failed", "undone")
    assert local.state(server) == ("ACTIVE", None, "host1"), "it is as it was"
    assert local.statuses(server)[-1] == "failed"
    assert local.action(server)[:2] == ("evacuate", "Error")
    assert (local.ports(server), local.allocations(server)) == ([port], {"host1": TINY})
    local.back("host1")
    until(lambda: "boot=2" in local.console(server), SECONDS, "its own host starts it again")
    assert "mine" in local.console(server), "its only copy was never touched"
    local.delete(server)


def test_e6_a_failed_evacuation_a_rebuild_and_a_restart_of_the_source(local: Operator) -> None:
    server = local.create("e6", "host1")
    local.dead("host1")
    local.disable("host2", "host3")
    assert local.http.ended(local.evacuate(server))["state"] in ("failed", "undone")
    local.back("host1", "host2", "host3")
    local.rebuild(server, "cirros-sim-alt")
    local.settled(server, "host1")
    assert local.statuses(server) == ["error"], "the rebuild took up nothing of the evacuation"
    local.switch("host1", power="off")
    local.back("host1")
    until(lambda: "boot=2" in local.console(server), SECONDS, "it runs again")
    assert image_of(local, "cirros-sim-alt") in local.console(server)
    assert local.state(server) == ("ACTIVE", None, "host1")
    assert local.allocations(server) == {"host1": TINY}
    local.delete(server)


def test_e7_the_destination_dies_and_another_is_tried(local: Operator) -> None:
    server = local.create("e7", "host1")
    local.disable("host3")
    local.dead("host1")
    operation = local.evacuate(server)
    local.at_work(server, "rebuild_spawning")
    local.switch("host2", power="off")
    local.back("host3")
    assert local.force_down("host2").status == 200
    local.settled(server, "host3")
    assert local.http.operation(operation)["state"] == "done"
    assert local.moves(server)[-1] == ("done", "host1", "host3")
    assert local.allocations(server).keys() == {"host1", "host3"}, "nothing is claimed of the dead destination"
    local.back("host1", "host2")
    local.completed(server)
    assert (local.allocations(server), "boot=1" in local.console(server)) == ({"host3": TINY}, True)
    local.delete(server)


def test_e7_the_destination_dies_and_the_source_returns(local: Operator) -> None:
    server = local.create("e7s", "host1")
    local.write(server, "mine")
    local.disable("host3")
    local.dead("host1")
    operation = local.evacuate(server)
    local.at_work(server, "rebuild_spawning")
    local.dead("host2")
    assert local.http.ended(operation)["state"] in ("failed", "undone")
    assert local.state(server) == ("ACTIVE", None, "host1")
    local.back("host1", "host2", "host3")
    until(lambda: "boot=2" in local.console(server), SECONDS, "the source's copy is adopted")
    assert "mine" in local.console(server) and local.allocations(server) == {"host1": TINY}
    local.delete(server)


def test_e8_the_source_reconnects_without_a_restart(local: Operator) -> None:
    """Its guest ran all the time; it stops before anything else happens there."""
    server = local.create("e8", "host1")
    local.switch("host1", link="cut")
    local.is_down("host1")
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    assert [one["server"] for one in local.host("host1")["owed"]] == [server]
    local.switch("host1", link="up")
    local.completed(server)
    assert local.host("host1")["owed"] == [] and local.allocations(server) == {"host2": TINY}
    assert local.state(server) == ("ACTIVE", None, "host2") and "boot=1" in local.console(server)
    local.delete(server)


def test_e9_deleted_before_the_source_returns(local: Operator) -> None:
    server = local.create("e9", "host1")
    local.dead("host1")
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    local.delete(server)
    assert local.allocations(server) == {} and local.ports(server) == []
    local.back("host1")
    assert local.allocations(server) == {} and local.host("host1")["quarantine"] == []


def test_e10_the_service_of_the_dead_source_is_deleted(local: Operator) -> None:
    server = local.create("e10", "host1")
    service = local.service("host1")["id"]
    local.switch("host1", power="off")
    local.is_down("host1")
    refused = local.ask("DELETE", f"/compute/v2.1/os-services/{service}")
    assert refused.status == 409 and b"hosting instances" in refused.body
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    assert local.allocations(server).keys() == {"host1", "host2"}
    assert local.ask("DELETE", f"/compute/v2.1/os-services/{service}").status == 204
    assert local.service("host1") is None and local.statuses(server) == ["completed"]
    assert local.allocations(server) == {"host2": TINY}
    local.switch("host1", power="on")
    until(lambda: local.service("host1"), SECONDS, "the machine joins again")
    assert local.service("host1")["id"] != service
    local.delete(server)


def test_e11_a_network_split_and_an_operator_who_forces_down(local: Operator) -> None:
    server = local.create("e11", "host1")
    local.switch("host1", link="cut")
    assert local.force_down("host1").status == 200
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    refused = local.force_down("host1", False)
    assert refused.status == 400, "the word is not taken back while the old guest may run"
    local.switch("host1", link="up")
    local.completed(server)
    until(lambda: local.force_down("host1", False).status == 200, SECONDS, "now it is")
    assert local.state(server) == ("ACTIVE", None, "host2") and "boot=1" in local.console(server)
    assert local.allocations(server) == {"host2": TINY}
    local.delete(server)


def _group(operator: Operator, name: str) -> str:
    body = {"server_group": {"name": name, "policy": "affinity"}}
    return str(operator.change("POST", "/compute/v2.1/os-server-groups", body)["server_group"]["id"])


def test_e13_the_only_member_of_an_affinity_group(local: Operator) -> None:
    group = _group(local, "e13")
    server = local.create("e13", "host1", hints={"group": group})
    local.dead("host1")
    local.evacuate(server)
    local.until(server, lambda state: state[:2] == ("ACTIVE", None) and state[2] in ("host2", "host3"))
    shown = local.get(f"/compute/v2.1/os-server-groups/{group}")["server_group"]
    assert shown["members"] == [server]
    local.delete(server)
    local.change("DELETE", f"/compute/v2.1/os-server-groups/{group}")


def test_e13_the_group_was_deleted_before(local: Operator) -> None:
    group = _group(local, "e13b")
    server = local.create("e13b", "host1", hints={"group": group})
    local.change("DELETE", f"/compute/v2.1/os-server-groups/{group}")
    local.dead("host1")
    local.evacuate(server)
    local.until(server, lambda state: state[:2] == ("ACTIVE", None) and state[2] in ("host2", "host3"))
    local.delete(server)


@pytest.mark.parametrize(("version", "status"), [("2.94", "ACTIVE"), ("2.95", "SHUTOFF")])
def test_e14_the_form_decides_how_it_arrives(local: Operator, version: str, status: str) -> None:
    """The bodies and answers of all five forms are a conversation; here one that ran, and one that was stopped."""
    ran, stopped = local.create("e14", "host1"), local.create("e14s", "host1")
    assert local.act(stopped, **{"os-stop": None}).status == 202
    local.settled(stopped, "host1", "SHUTOFF")
    local.dead("host1")
    for server in (ran, stopped):
        local.evacuate(server, version, host="host2")
    local.settled(ran, "host2", status)
    local.settled(stopped, "host2", "SHUTOFF")
    for server in (ran, stopped):
        local.delete(server)


def test_e15_asked_for_twice(local: Operator) -> None:
    server = local.create("e15", "host1")
    local.dead("host1")
    first = local.evacuate(server, host="host2")
    assert local.evacuate(server, host="host2") == first
    assert local.evacuate(server) == first, "no target is any target"
    other = local.act(server, evacuate={"host": "host3"})
    assert other.status == 409, other.body
    local.settled(server, "host2")
    assert local.moves(server) == [("done", "host1", "host2")], "one record"
    local.delete(server)


def test_e17_no_host_fits(local: Operator) -> None:
    server = local.create("e17", "host1")
    local.dead("host1")
    local.disable("host2", "host3")
    operation = local.evacuate(server)
    assert local.http.ended(operation)["state"] in ("failed", "undone")
    assert local.state(server) == ("ACTIVE", None, "host1"), "the state is kept"
    assert "fault" not in local.server(server) or local.server(server)["status"] == "ACTIVE"
    assert local.statuses(server) == ["error"] and local.allocations(server) == {"host1": TINY}
    action, message, events = local.action(server)
    assert (action, message, events[0][:2]) == ("evacuate", "Error", ("rebuild_server", "Error"))
    assert "No valid host was found" in events[0][2]
    verdicts = local.http.get(f"/operations/{operation}/explain")
    assert "disabled" in str(verdicts), verdicts
    local.delete(server)


def test_e19_an_observer_that_heard_nobody(local: Operator) -> None:
    """The program stands still for longer than a host may be silent: its hosts may have beaten all the time."""
    server = local.create("e19", "host1")
    local.switch("host1", power="off")
    local.cloud.process.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    local.cloud.process.send_signal(signal.SIGCONT)
    found = local.act(server, evacuate={"host": "host2"})
    assert found.status == 400 and b"may be alive" in found.body, found.body
    assert (local.moves(server), local.service("host1")["state"]) == ([], "down")
    assert local.force_down("host1").status == 200
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    local.delete(server)
