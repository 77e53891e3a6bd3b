"""Copies that the records do not explain: left alone, whatever happens around them, until an operator's word."""

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.guest import CopyReport
from kilonova.hosts.states import declare_down
from kilonova.operations.quarantine import adopt_quarantined, remove_quarantined
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.quarantine import add_to_quarantine
from tests.engine.speaking import Speaker


def held(cloud):
    return [(q["host"], q["server_id"], q["copy"]) for q in cloud.records().table("quarantine") if not q["ended_at"]]


def write(cloud, table, values, **keys):
    async def body(tx):
        assert await rows.change(tx, table, values, **keys)

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(body))


def register(cloud, host):
    cloud.crash(host, 1.0)
    cloud.loop.run_for(20.0)


@pytest.fixture
def lost(cloud):
    """A server whose only copy that counts is gone; a copy with a number of a later turn lies on host2."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.plant("host2", server, 700, "off")
    cloud.hardware.note("host2", server, (900, 4))
    register(cloud, "host2")
    cloud.hardware.lose("host1", server)
    assert held(cloud) == [("host2", server, 700)]
    return cloud, server


def test_it_stays_when_the_turn_has_passed_it(cloud):
    """Many operations later its number is no longer newer than the records: that says nothing about the copy."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.plant("host2", server, 3, "off")
    register(cloud, "host2")
    assert held(cloud) == [("host2", server, 3)]
    for kind in ("stop", "start", "stop", "start"):
        cloud.submit(kind, server)
        cloud.loop.run_for(10.0)
    assert cloud.server(server)["turn"] > 3
    register(cloud, "host2")
    assert held(cloud) == [("host2", server, 3)]
    assert [(f.host, f.copy) for f in cloud.hardware.survey(server)] == [("host1", 1), ("host2", 3)]


def test_it_stays_when_its_server_is_deleted(cloud):
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.plant("host2", server, 3, "off")
    register(cloud, "host2")
    cloud.submit("delete", server)
    cloud.loop.run_for(20.0)
    register(cloud, "host2")
    assert [(f.host, f.copy) for f in cloud.hardware.survey(server)] == [("host2", 3)]


def test_an_unrecorded_copy_is_kept_where_no_other_may_run(cloud):
    """It may be all that is left of the server."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    write(cloud, cell.servers, {"runner_host": None, "runner_copy": None, "turn": 9}, id=server)
    cloud.hardware.plant("host2", server, 3, "off")
    register(cloud, "host2")
    assert held(cloud) == [("host2", server, 3)]
    assert ("host2", 3) in [(f.host, f.copy) for f in cloud.hardware.survey(server)]


def test_what_has_vanished_leaves_the_quarantine(lost):
    cloud, server = lost
    cloud.hardware.lose("host2", server)
    register(cloud, "host2")
    assert held(cloud) == []


@pytest.mark.parametrize("power", ["on", "off"])
def test_the_server_becomes_what_the_copy_is(cloud, power):
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.plant("host2", server, 700, power)
    register(cloud, "host2")
    cloud.hardware.lose("host1", server)
    write(cloud, cell.servers, {"vm_state": "error"}, id=server)
    cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.loop.run_for(20.0)
    row = cloud.server(server)
    assert (row["vm_state"], row["host"], row["runner_copy"]) == (
        "active" if power == "on" else "stopped",
        "host2",
        700,
    )
    assert "adopted on the word of admin" in row["runner_proof"]
    assert cloud.hardware.running(server) == ([("host2", 700)] if power == "on" else [])


def test_the_next_turn_is_above_all_that_the_host_has_had(lost):
    """Or it would drop every order from then on."""
    cloud, server = lost
    cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.loop.run_for(20.0)
    assert cloud.server(server)["turn"] > 900
    operation = cloud.submit("start", server).operation_id
    cloud.loop.run_for(20.0)
    assert cloud.operation(operation)["state"] == "done"


def test_a_declared_host_does_not_stand_in_the_way_and_owes_its_copy(cloud):
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.plant("host2", server, 700, "off")
    register(cloud, "host2")
    cloud.hardware.switch_power("host1", False)
    with pytest.raises(Refused, match="does not answer"):
        cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.loop.run_for(20.0)
    assert cloud.server(server)["runner_host"] == "host2"
    assert [(d["host"], d["copy"]) for d in cloud.records().table("debts")] == [("host1", 1)]


def test_half_a_disk_is_not_adopted(lost):
    cloud, server = lost
    write(cloud, cell.quarantine, {"whole": 0}, host="host2", server_id=server)
    with pytest.raises(Refused, match="no complete disk"):
        cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    assert cloud.server(server)["operation_id"] is None


def test_with_several_copies_one_has_to_be_named(lost):
    cloud, server = lost
    cloud.hardware.plant("host2", server, 701, "off")
    register(cloud, "host2")
    with pytest.raises(Refused, match="copies 700, 701 in quarantine"):
        cloud.do(lambda engine: remove_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.do(lambda engine: remove_quarantined(engine, "host2", server, 701, cloud.cause()))
    cloud.loop.run_for(20.0)
    assert held(cloud) == [("host2", server, 700)]
    cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.loop.run_for(20.0)
    assert held(cloud) == []


def test_the_word_is_given_twice_and_carried_out_once(lost):
    cloud, server = lost
    cloud.kill("host2")
    for _ in range(2):
        cloud.do(lambda engine: remove_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.start("host2")
    cloud.loop.run_for(20.0)
    assert cloud.hardware.survey(server) == [] and cloud.records().table("debts") == []
    with pytest.raises(Refused, match="has no copy in quarantine"):
        cloud.do(lambda engine: remove_quarantined(engine, "host2", server, None, cloud.cause()))


def test_a_host_cannot_end_a_quarantine_by_itself(cloud):
    cloud = cloud(hosts=2)
    speaker = Speaker(cloud, "host2")
    speaker.register(CopyReport("ghost", 1, "on", True))
    assert speaker.returned(destroyed=[("ghost", 1)], adopted=[("ghost", 1, True)])
    assert held(cloud) == [("host2", "ghost", 1)]
    speaker.register(CopyReport("ghost", 1, "on", True))
    assert held(cloud) == [("host2", "ghost", 1)]


def test_a_copy_that_is_to_be_removed_is_not_adopted(lost):
    """The host may remove it at any moment: nothing would be left of the server."""
    cloud, server = lost
    cloud.kill("host2")
    cloud.do(lambda engine: remove_quarantined(engine, "host2", server, None, cloud.cause()))
    with pytest.raises(Refused, match="copy 700 on host2 is not in quarantine"):
        cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    assert cloud.server(server)["operation_id"] is None
    assert [q["action"] for q in cloud.records().table("quarantine")] == ["remove"]


def test_a_move_cannot_be_reverted_to_a_copy_that_is_to_be_removed(cloud):
    """Its host is away, and removes the copy when it is back, however far a revert has come by then."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.submit("migrate", server)
    cloud.loop.run_for(20.0)

    async def set_apart(tx):
        await add_to_quarantine(tx, "host1", CopyReport(server, 1, "off", True), "the records were restored", 0.0)

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(set_apart))
    cloud.kill("host1")
    cloud.do(lambda engine: remove_quarantined(engine, "host1", server, 1, cloud.cause()))
    with pytest.raises(Refused, match="its old copy is gone"):
        cloud.submit("revert_resize", server)
    cloud.start("host1")
    cloud.loop.run_for(20.0)
    cloud.submit("confirm_resize", server)
    cloud.loop.run_for(20.0)
    assert cloud.server(server)["vm_state"] == "active"
    assert [(f.host, f.copy) for f in cloud.hardware.survey(server)] == [("host2", 2)]
