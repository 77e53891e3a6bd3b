"""A server that is soft-deleted by restored records is not reclaimed because of them (law 15)."""

import msgspec
import pytest

from kilonova.audit.run import audit
from kilonova.engine.restored import begin_era
from kilonova.settings import Default
from kilonova.sim.lab.settings import simulated

INTERVAL = 400.0
BOTH = pytest.mark.parametrize("names", [("cell1",), ("control", "placement", "cell0", "cell1")], ids=["D3", "D4b"])


@pytest.fixture
def lab(cloud):
    return cloud(hosts=2, settings=simulated(default=Default(reclaim_instance_interval=INTERVAL)))


def soft_deleted(cloud):
    server, _ = cloud.make(host="host1")
    cloud.submit("soft_delete", server)
    cloud.loop.run_for(20.0)
    assert state(cloud, server) == ("soft-delete", 0)
    return server


def state(cloud, server):
    row = cloud.server(server)
    return row["vm_state"], row["deleted"]


def act(cloud, kind, server):
    cloud.submit(kind, server)
    cloud.loop.run_for(20.0)


def put_back(cloud, backup, names, *, silent=""):
    """And the word is given. The host `silent` does not report."""
    for name in [name for name, role in cloud.roles.items() if role.stores is not None]:
        cloud.kill(name)
    cloud.loop.run_for(20.0)
    cloud.put_back(backup, list(names))
    cloud.alone(begin_era, "a new era", faulty=False)
    cloud.start_all()
    if silent:
        cloud.kill(silent)
    cloud.loop.run_for(70.0)


def counted(cloud, server):
    (row,) = [row for row in cloud.records().table("server_mappings") if row["server_id"] == server]
    return row["counted"]


def differences(cloud):
    report = cloud.alone(lambda stores: audit(stores, cloud.clock, mend=False), "an audit", faulty=False)
    return [(one.kind, one.server) for one in report.differences], report.miscounted


@BOTH
def test_one_whose_guest_runs_was_restored_since_the_backup(lab, names):
    server = soft_deleted(lab)
    backup = lab.back_up()
    act(lab, "restore", server)
    put_back(lab, backup, names)
    lab.loop.run_for(3 * INTERVAL)
    assert state(lab, server) == ("active", 0)
    assert msgspec.json.decode(lab.server(server)["details"])["soft_deleted_at"] is None
    assert lab.hardware.running(server) == [("host1", 1)]
    assert counted(lab, server) == 1 and differences(lab) == ([], [])
    lab.kill("host1")  # and it is not stopped by the next report
    lab.start_all()
    lab.loop.run_for(70.0)
    assert lab.hardware.running(server) == [("host1", 1)]


@BOTH
def test_one_whose_guest_is_off_is_kept_until_somebody_decides(lab, names):
    """Its owner may have restored and stopped it."""
    server = soft_deleted(lab)
    backup = lab.back_up()
    act(lab, "restore", server)
    act(lab, "stop", server)
    put_back(lab, backup, names)
    lab.loop.run_for(3 * INTERVAL)
    assert state(lab, server) == ("soft-delete", 0)
    assert [one.whole for one in lab.hardware.survey(server)] == [True]
    assert differences(lab) == ([("not_reclaimed", server)], [])
    act(lab, "restore", server)
    assert state(lab, server) == ("active", 0)
    assert differences(lab) == ([], [])
    act(lab, "soft_delete", server)
    lab.loop.run_for(INTERVAL / 2)
    assert state(lab, server) == ("soft-delete", 0)
    lab.loop.run_for(INTERVAL)
    assert state(lab, server)[1], "what was deleted since is reclaimed as ever"


def test_one_whose_record_was_lost_counts_again(lab):
    """It was made and soft-deleted since the backup: control says that it does not count."""
    backup = lab.back_up()
    server = soft_deleted(lab)
    assert counted(lab, server) == 0
    put_back(lab, backup, ("cell1",))
    assert state(lab, server) == ("error", 0)
    assert counted(lab, server) == 1 and differences(lab)[1] == []


def test_it_is_not_reclaimed_after_a_restore_that_failed(lab):
    """The turn has grown, and the time of its deletion is still from before."""
    server = soft_deleted(lab)
    backup = lab.back_up()
    act(lab, "restore", server)
    act(lab, "stop", server)
    put_back(lab, backup, ("cell1",))
    lab.hardware.fail("host1", "ensure_power", times=100)
    lab.submit("restore", server)
    lab.loop.run_for(3 * INTERVAL)
    assert state(lab, server) == ("soft-delete", 0)


def test_the_clock_of_the_old_machine_was_ahead(lab):
    server = soft_deleted(lab)
    backup = lab.back_up()
    act(lab, "restore", server)
    act(lab, "stop", server)
    put_back(lab, backup, ("cell1",))
    set_soft_deleted_at(lab, server, lab.clock.now() + 1.0)
    lab.loop.run_for(3 * INTERVAL)
    assert state(lab, server) == ("soft-delete", 0)


def set_soft_deleted_at(cloud, server, at):
    from kilonova.engine.details import edit_details

    async def work(stores):
        await stores.cell("cell1").write(lambda tx: edit_details(tx, server, {"soft_deleted_at": at}))

    cloud.alone(work, "the other clock", faulty=False)
