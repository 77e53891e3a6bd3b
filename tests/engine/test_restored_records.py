"""After a restore every server is in its owner's reach again: recorded, mapped, and never twice (law 15)."""

import pytest

from kilonova.audit.run import audit
from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.restored import begin_era
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.quarantine import adopt_quarantined, remove_quarantined
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from tests.engine.test_quarantine import held
from tests.engine.test_restored_soft_deleted import put_back


@pytest.fixture
def lab(cloud):
    return cloud(**{"hosts": 2, "addresses": 8, "volumes": 1})


def forget(cloud, database, *tables, **keys):
    """As a database from before has it: these rows are not there yet."""

    async def body(tx):
        for table in tables:
            column = "id" if table is cell.servers else "server_id"
            await rows.remove(tx, table, **{column: keys["server"]})

    async def work(stores):
        store = stores.control if database == "control" else stores.cell(database)
        await store.write(body)

    cloud.alone(work, "the loss", faulty=False)


def restore(cloud):
    """The word, given while nobody else is at the databases; then all start again."""
    for name in list(cloud.roles):
        cloud.kill(name)
    accounts = cloud.alone(begin_era, "a new era", faulty=False)
    cloud.start_all()
    cloud.loop.run_for(70.0)
    return {one.name: one for one in accounts}


def mapping(cloud, server):
    return next((row for row in cloud.records().table("server_mappings") if row["server_id"] == server), None)


def status(cloud, server):
    row = cloud.server(server)
    return row["vm_state"], row["host"], row["runner_host"]


def test_a_mapped_server_without_a_record_gets_one_and_its_guest_back(lab):
    server, _ = lab.make(host="host1", networks=[{"network_id": lab.laid.network}])
    forget(lab, "cell1", cell.servers, cell.copies, server=server)
    assert restore(lab)["cell1"].recorded == 1
    assert status(lab, server) == ("error", "host1", None)
    assert lab.server(server)["network_info"] not in (None, "[]")
    assert any("was lost" in fault["message"] for fault in lab.records().table("faults"))
    assert held(lab) == [("host1", server, 1)]
    lab.do(lambda engine: adopt_quarantined(engine, "host1", server, None, lab.cause()))
    lab.loop.run_for(20.0)
    assert status(lab, server) == ("active", "host1", "host1")
    assert lab.hardware.running(server) == [("host1", 1)]


def test_it_can_be_deleted_and_leaves_nothing_but_the_guest(lab):
    server, _ = lab.make(host="host1")
    forget(lab, "cell1", cell.servers, cell.copies, server=server)
    restore(lab)
    lab.submit("delete", server)
    lab.loop.run_for(20.0)
    assert lab.records().held == {}
    assert lab.hardware.running(server) == [("host1", 1)], "only an operator's word removes a guest"


def test_a_recorded_server_without_a_mapping_gets_one(lab):
    server, _ = lab.make(host="host1")
    forget(lab, "control", control.server_mappings, control.request_specs, server=server)
    assert restore(lab)["control"].mapped == 1
    assert mapping(lab, server)["cell"] == "cell1"
    assert status(lab, server) == ("active", "host1", "host1")
    lab.submit("delete", server)
    lab.loop.run_for(20.0)
    assert lab.hardware.survey(server) == []


def test_a_deleted_server_is_not_mapped_again(lab):
    server, _ = lab.make()
    lab.submit("delete", server)
    lab.loop.run_for(20.0)

    async def body(tx):
        values = {"queued_for_delete": 0, "counted": 0}
        assert await rows.change(tx, control.server_mappings, values, server_id=server)

    lab.alone(lambda stores: stores.control.write(body), "an older control", faulty=False)
    restore(lab)
    assert mapping(lab, server)["queued_for_delete"] == 1


def test_an_attachment_that_the_record_does_not_name_can_be_detached(lab):
    server, _ = lab.make(host="host1")
    volume = lab.stock.volumes[0]
    lab.submit("attach_volume", server, id="bdm", volume_id=volume)
    lab.loop.run_for(20.0)

    async def body(tx):
        assert await rows.change(tx, cell.servers, {"volume_info": None}, id=server)

    lab.alone(lambda stores: stores.cell("cell1").write(body), "an older record", faulty=False)
    assert restore(lab)["cell1"].attached == 1
    lab.submit("detach_volume", server, volume_id=volume)
    lab.loop.run_for(20.0)
    assert lab.records().table("volume_attachments") == []


def test_it_may_be_repeated(lab):
    server, _ = lab.make(host="host1")
    forget(lab, "cell1", cell.servers, cell.copies, server=server)
    restore(lab)
    accounts = restore(lab)
    assert (accounts["cell1"].recorded, accounts["control"].mapped) == (0, 0)
    assert held(lab) == [("host1", server, 1)]


@pytest.fixture
def doubled(lab):
    """A server that is stopped by its records, and a newer guest on another host, which these do not know."""
    server, _ = lab.make(host="host1")
    lab.submit("stop", server)
    lab.loop.run_for(20.0)
    lab.hardware.plant("host2", server, 3, "on")
    restore(lab)
    assert held(lab) == [("host2", server, 3)]
    return lab, server


def test_of_two_whole_copies_the_one_that_was_not_adopted_is_kept(doubled):
    cloud, server = doubled
    cloud.do(lambda engine: adopt_quarantined(engine, "host2", server, None, cloud.cause()))
    cloud.loop.run_for(30.0)
    assert status(cloud, server) == ("active", "host2", "host2")
    assert held(cloud) == [("host1", server, 1)]
    assert [(f.host, f.copy, f.power) for f in cloud.hardware.survey(server)] == [
        ("host1", 1, "off"),
        ("host2", 3, "on"),
    ]
    cloud.do(lambda engine: remove_quarantined(engine, "host1", server, None, cloud.cause()))
    cloud.loop.run_for(30.0)
    assert [(f.host, f.copy) for f in cloud.hardware.survey(server)] == [("host2", 3)]


def test_no_copy_is_adopted_beside_one_that_runs(lab):
    server, _ = lab.make(host="host1")
    lab.hardware.plant("host2", server, 3, "off")
    restore(lab)
    with pytest.raises(Refused, match="holds permission to run"):
        lab.do(lambda engine: adopt_quarantined(engine, "host2", server, None, lab.cause()))


def test_a_stop_that_would_not_reach_the_guest_is_refused(lab):
    server, _ = lab.make(host="host1")
    lab.hardware.plant("host2", server, 3, "on")
    restore(lab)
    with pytest.raises(Refused, match="copy 3 on host2 may be newer"):
        lab.submit("stop", server)


def test_an_audit_waits_for_the_word_about_a_quarantined_copy(doubled):
    cloud, server = doubled

    async def body(tx):
        assert await rows.change(tx, cell.servers, {"host": "host2"}, id=server)

    cloud.alone(lambda stores: stores.cell("cell1").write(body), "a difference", faulty=False)
    report = cloud.alone(lambda stores: audit(stores, cloud.clock, mend=True), "an audit", faulty=False)
    (finding,) = report.findings
    assert (finding.consumer, finding.outcome) == (server, "left") and "in quarantine on host2" in finding.why


def test_an_audit_knows_the_claim_of_a_move_whose_record_is_lost(lab):
    server, _ = lab.make(host="host1")
    lab.submit("migrate", server)
    lab.loop.run_for(30.0)
    (move,) = lab.records().table("migrations")

    async def body(tx):
        assert await rows.remove(tx, cell.migrations, id=move["id"])

    lab.alone(lambda stores: stores.cell("cell1").write(body), "a loss", faulty=False)
    report = lab.alone(lambda stores: audit(stores, lab.clock, mend=True), "an audit", faulty=False)
    assert [(one.consumer, one.server, one.outcome) for one in report.findings] == [(move["id"], server, "repaired")]
    assert report.foreign == []


@pytest.fixture
def buried(cloud):
    """No host could build the server, and it was buried in cell0; returns it with a backup from before that."""
    lab = cloud(hosts=2)
    for host in ("host1", "host2"):
        lab.hardware.fail(host, "ensure_power", 1000, "refuse")
    server, _ = lab.make(wait=0.5)
    assert lab.records().databases["cell1"]["servers"]
    backup = lab.back_up()
    lab.loop.run_for(600.0)
    assert cells_of(lab, server) == ["cell0"]
    return lab, server, backup


def cells_of(cloud, server):
    return sorted(row["database"] for row in cloud.records().table("servers") if row["id"] == server)


def test_one_that_was_buried_since_the_backup_is_in_cell0_alone(buried):
    lab, server, backup = buried
    put_back(lab, backup, ("cell1",))
    assert cells_of(lab, server) == ["cell0"]
    assert mapping(lab, server)["cell"] == "cell0"
    lab.submit("delete", server)
    lab.loop.run_for(30.0)
    assert [row["copy"] for row in lab.records().table("copies") if row["server_id"] == server] == []
    assert mapping(lab, server)["queued_for_delete"]


@pytest.mark.parametrize("names", [("cell0",), ("cell0", "control")], ids=["cell0", "cell0 and control"])
def test_one_that_left_cell0_since_the_backup_is_where_its_guest_is(buried, names):
    lab, server, _ = buried
    backup = lab.back_up()
    lab.hardware.heal()
    lab.do(
        lambda engine: rebuild_unplaced(
            engine, Ask(kind="rebuild", server_id=server, cause=lab.cause(), params=ANY_FAILURE)
        )
    )
    lab.loop.run_for(60.0)
    assert cells_of(lab, server) == ["cell1"] and len(lab.hardware.running(server)) == 1
    put_back(lab, backup, names)
    assert cells_of(lab, server) == ["cell1"]
    assert mapping(lab, server)["cell"] == "cell1"
    assert lab.server(server)["vm_state"] == "active" and len(lab.hardware.running(server)) == 1
