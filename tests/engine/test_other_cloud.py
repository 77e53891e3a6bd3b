"""An agent of another cloud is refused: it says why, and nothing changes here or there (law 15)."""

import pytest

from kilonova.domain.guest import CopyReport
from kilonova.sim.histories.histories import digest
from tests.engine.speaking import Speaker

LATER = {"control": (1, 90_000), "placement": (1, 90_000), "cell1": (1, 90_000)}


@pytest.fixture
def lab(cloud):
    return cloud(hosts=3, marks=True)


def everything(cloud):
    """All that is recorded of hosts, guests and operations; heartbeats are not."""
    records = cloud.records()
    tables = ("hosts", "servers", "copies", "quarantine", "debts", "inventories", "host_mappings")
    changing = ("last_seen", "database")
    rows = [{k: v for k, v in row.items() if k not in changing} for name in tables for row in records.table(name)]
    return digest(records), rows


def test_it_is_refused_and_nothing_is_changed(lab):
    server, _ = lab.make(host="host1")
    speakers = [Speaker(lab, host) for host in ("host2", "host3")]
    lab.loop.run_for(5.0)
    before = everything(lab)
    for speaker in speakers:
        foreign = CopyReport("ghost", 1, "on", True)
        answer = speaker.register(foreign, cloud="another", seen=LATER)
        assert answer.refused.startswith(f"host {speaker.host} belongs to cloud another, and this is cloud simulated;")
        assert "[bus] url" in answer.refused and answer.verdicts == []
    assert everything(lab) == before
    assert not any(role.stores.halted for role in lab.roles.values() if role.stores is not None)
    lab.submit("stop", server)
    lab.loop.run_for(20.0)
    assert lab.server(server)["vm_state"] == "stopped"


def test_the_agent_ends_with_the_reason_and_keeps_its_guests(lab):
    server, _ = lab.make(host="host1")
    lab.kill("host1")
    lab.hardware.note("host1", "cloud", {"id": "another", "seen": LATER})
    memory = lab.hardware.recall("host1")
    lab.start("host1")
    lab.loop.run_for(30.0)
    assert "belongs to cloud another" in lab.roles["host1"].part.refused
    assert lab.hardware.recall("host1") == memory
    assert lab.hardware.running(server) == [("host1", 1)]


def test_its_heartbeat_is_not_heard(lab):
    """It gets no work and proves nothing about the host of this cloud that has its name; it is told to register."""
    lab.make(host="host1")
    lab.kill("host1")
    speaker = Speaker(lab, "host1")
    (row,) = [host for host in lab.records().table("hosts") if host["name"] == "host1"]
    speaker.session, speaker.epoch = row["session"], row["epoch"]
    lab.loop.run_for(5.0)
    before = {host["name"]: host["last_seen"] for host in lab.records().table("hosts")}
    for _ in range(3):
        orders = speaker.beat(cloud="another", seen=LATER)
        assert orders.register_again and not orders.steps and not orders.seen
        lab.loop.run_for(20.0)
    after = {host["name"]: host["last_seen"] for host in lab.records().table("hosts")}
    assert after["host1"] == before["host1"] and after["host2"] > before["host2"]
    assert not speaker.beat(cloud="simulated").register_again
    assert not any(role.stores.halted for role in lab.roles.values() if role.stores is not None)
