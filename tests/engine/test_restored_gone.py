"""A host that was declared gone since the backup: its servers are settled by that word (law 15)."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.hosts.states import declare_down, find_host
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from tests.engine.test_restored_soft_deleted import act, put_back

HOST = "host1"


def dead_and_gone(cloud):
    """Its only server was evacuated before; returns the server and a backup from before the host died."""
    server, _ = cloud.make(host=HOST)
    cloud.loop.run_for(20.0)
    backup = cloud.back_up()
    cloud.hardware.switch_power(HOST, False)
    cloud.do(lambda engine: declare_down(engine, HOST))
    act(cloud, "evacuate", server)
    assert cloud.server(server)["host"] == "host2"

    async def word(engine):
        journal, _ = await find_host(engine, HOST)
        return await declare_gone(engine, journal, HOST, "it burnt down", cloud.cause())

    cloud.do(word)
    cloud.loop.run_for(60.0)
    assert HOST not in [row["name"] for row in cloud.records().table("hosts")]
    return server, backup


def test_its_servers_are_in_error_and_their_copies_can_be_adopted(cloud):
    lab = cloud(hosts=2)
    server, backup = dead_and_gone(lab)
    put_back(lab, backup, ("cell1",), silent=HOST)
    row = lab.server(server)
    assert (row["vm_state"], row["runner_host"]) == ("error", HOST)
    (fault,) = [one for one in lab.records().table("faults") if one["server_id"] == server]
    assert "declared gone" in fault["message"]
    (host,) = [one for one in lab.records().table("hosts") if one["name"] == HOST]
    assert host["fenced"].startswith("declared gone as host1") and host["disabled"]
    (found,) = [one for one in lab.records().table("quarantine") if one["server_id"] == server]
    assert found["host"] == "host2" and len(lab.hardware.running(server)) == 1


def test_a_move_from_it_can_only_be_confirmed(cloud):
    """Nobody waits for the old copy, although the restored records have it."""
    lab = cloud(hosts=2)
    moved, _ = lab.make("moved", host=HOST)
    act(lab, "migrate", moved)
    _, backup = dead_and_gone(lab)
    put_back(lab, backup, ("cell1",), silent=HOST)
    with pytest.raises(Refused, match="its old copy is gone"):
        lab.submit("revert_resize", moved)
    act(lab, "confirm_resize", moved)
    row = lab.server(moved)
    assert (row["vm_state"], row["host"], lab.hardware.running(moved)) == ("active", "host2", [("host2", 2)])


EVERYTHING = ("control", "placement", "cell0", "cell1")


@pytest.fixture
def successor(cloud):
    """Another machine has taken the name since the backup, and a server is on it; the word that the host was gone is
    lost as well."""
    lab = cloud(hosts=2, marks=True)
    old, backup = dead_and_gone(lab)
    lab.hardware.lose(HOST, old)
    lab.hardware.remember(HOST, {})
    lab.hardware.switch_power(HOST, True)
    lab.loop.run_for(30.0)
    server, _ = lab.make("b", host=HOST)
    assert lab.hardware.running(server) == [(HOST, 1)]
    return lab, old, server, backup


def recorded(cloud):
    (host,) = [one for one in cloud.records().table("hosts") if one["name"] == HOST]
    return host


def quarantined(cloud):
    return sorted((one["host"], one["server_id"]) for one in cloud.records().table("quarantine") if not one["ended_at"])


def test_who_has_taken_its_name_since_is_heard_and_disabled(successor):
    lab, old, server, backup = successor
    put_back(lab, backup, EVERYTHING)
    assert lab.roles[HOST].part.refused is None
    assert recorded(lab)["disabled"] and "another key" in recorded(lab)["disabled_reason"]
    assert lab.server(old)["vm_state"] == "error", "its disk was on the machine that is gone"
    assert quarantined(lab) == [(HOST, server), ("host2", old)]
    assert lab.hardware.running(server) == [(HOST, 1)]


def test_a_machine_that_never_joined_does_not_take_the_name(successor):
    lab, *_, backup = successor
    lab.hardware.switch_power(HOST, False)
    lab.hardware.remember(HOST, {})
    put_back(lab, backup, EVERYTHING)
    lab.hardware.switch_power(HOST, True)
    lab.loop.run_for(30.0)
    assert "another key" in lab.roles[HOST].part.refused


def test_nobody_takes_the_name_of_a_host_that_has_reported_since(successor):
    lab, *_, backup = successor
    put_back(lab, backup, EVERYTHING)
    memory = lab.hardware.recall(HOST)
    lab.hardware.switch_power(HOST, False)
    lab.hardware.remember(HOST, {**memory, "key": "a third one"})
    lab.hardware.switch_power(HOST, True)
    lab.loop.run_for(30.0)
    assert "another key" in lab.roles[HOST].part.refused
