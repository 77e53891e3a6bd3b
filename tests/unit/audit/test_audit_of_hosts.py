"""The audit asks hosts what they hold and compares it, ports and volumes with the records. It deletes nothing."""

import sqlite3

import pytest

from kilonova.audit.differences import KINDS
from kilonova.audit.holdings import asking
from kilonova.audit.run import audit
from kilonova.conductor.auditing import audit_all


@pytest.fixture
def scene(cloud):
    """A server with a port and a volume on host1."""
    cloud = cloud(hosts=2, addresses=10, volumes=1)
    volume = {"volume_id": cloud.stock.volumes[0]}
    server, _ = cloud.make(host="host1", networks=[{"network_id": cloud.laid.network}], volumes=[volume])
    assert cloud.server(server)["vm_state"] == "active"
    return cloud, server


def audited(cloud, mend=False):
    return cloud.do(
        lambda engine: audit(
            engine.world.db, engine.world.clock, mend=mend, ask=asking(engine.world.bus, engine.world.db)
        )
    )


def kinds(cloud):
    return [one.kind for one in audited(cloud).differences]


def tamper(cloud, database, sql):
    with sqlite3.connect(cloud.directory / f"{database}.db") as connection:
        assert connection.execute(sql).rowcount > 0


def guest(cloud, server):
    return cloud.hardware.host("host1").guests[server, 1]


def forget_server(cloud, server):
    """Its row is lost; nothing else is."""
    tamper(cloud, "cell1", "DELETE FROM servers")
    tamper(cloud, "control", "DELETE FROM server_mappings")


def damage(cloud, server):
    cloud.hardware.disk(cloud.hardware.host("host1"), server, 1).whole = False


def power(cloud, server, word):
    guest(cloud, server).power = word


def undefine_volumes(cloud, server):
    held = guest(cloud, server)
    held.spec = type(held.spec)(**{**{f: getattr(held.spec, f) for f in held.spec.__struct_fields__}, "volumes": []})


def restore_soft_deleted(cloud, server):
    tamper(cloud, "cell1", "UPDATE servers SET vm_state = 'soft-delete', turn_floor = turn")
    tamper(cloud, "cell1", "UPDATE this_store SET restored_at = 1.0")


CASES = {
    "unrecorded_copy": lambda c, s: c.hardware.plant("host2", "nobody", 1, "off"),
    "missing_copy": lambda c, s: c.hardware.lose("host1", s),
    "damaged_copy": damage,
    "unpermitted_guest": lambda c, s: c.hardware.plant("host2", s, 9),
    "guest_off": lambda c, s: power(c, s, "off"),
    "guest_on": lambda c, s: tamper(c, "cell1", "UPDATE servers SET vm_state = 'stopped'"),
    "not_reclaimed": restore_soft_deleted,
    "guest_volumes": undefine_volumes,
    "orphan_port": forget_server,
    "port_elsewhere": lambda c, s: tamper(c, "control", "UPDATE ports SET host = 'host2' WHERE device_id != ''"),
    "missing_port": lambda c, s: tamper(c, "control", "DELETE FROM ports WHERE device_id != ''"),
    "orphan_attachment": forget_server,
    "attachment_elsewhere": lambda c, s: tamper(c, "control", "UPDATE volume_attachments SET host = 'host2'"),
    "missing_attachment": lambda c, s: tamper(c, "control", "DELETE FROM volume_attachments"),
    "unrecorded_attachment": lambda c, s: tamper(c, "cell1", "UPDATE servers SET volume_info = '[]'"),
    "volume_in_use": lambda c, s: tamper(c, "control", "DELETE FROM volume_attachments"),
}


def test_every_kind_has_a_case():
    assert CASES.keys() == KINDS.keys()


def test_at_rest_there_is_nothing(scene):
    cloud, _ = scene
    report = audited(cloud)
    assert (report.differences, report.silent) == ([], [])
    assert report.is_clean


@pytest.mark.parametrize("kind", CASES)
def test_a_difference_is_found_and_nothing_is_repaired_by_deletion(scene, kind):
    cloud, server = scene
    CASES[kind](cloud, server)
    survey = cloud.hardware.survey()
    tables = [cloud.records().table(name) for name in ("copies", "ports", "volume_attachments", "volumes")]
    assert kind in kinds(cloud)
    assert not audited(cloud).is_clean
    cloud.do(audit_all)
    assert kind in kinds(cloud), "it is still there"
    assert cloud.hardware.survey() == survey
    assert tables == [cloud.records().table(name) for name in ("copies", "ports", "volume_attachments", "volumes")]


def test_a_host_that_does_not_answer_is_named_and_accused_of_nothing(scene):
    cloud, server = scene
    cloud.hardware.lose("host1", server)
    cloud.kill("host1")
    report = audited(cloud)
    assert (report.differences, report.silent) == ([], ["host1"])


def test_what_an_operation_is_at_work_on_is_passed_over(cloud):
    """In the middle of a migration there are two copies, and the ports are on their way."""
    cloud = cloud(hosts=2, addresses=10, copy_seconds=20.0)
    server, _ = cloud.make(host="host1", networks=[{"network_id": cloud.laid.network}])
    cloud.submit("migrate", server)
    for _ in range(12):
        cloud.loop.run_for(3.0)
        assert kinds(cloud) == []
    assert cloud.server(server)["vm_state"] == "resized"


def quarantine(cloud):
    cloud.crash("host2", 1.0)
    cloud.loop.run_for(20.0)


def owe(cloud):
    columns, values = "host, server_id, copy, verb, after, operation_id, created_at", "'{}', '', 0.0"
    tamper(cloud, "cell1", f"INSERT INTO debts ({columns}) VALUES ('host2', 'ghost', 1, 'ensure_absent', {values})")


@pytest.mark.parametrize("explain", [quarantine, owe])
def test_what_is_in_quarantine_or_owed_is_known(scene, explain):
    cloud, _ = scene
    cloud.hardware.plant("host2", "ghost", 1)
    assert kinds(cloud) == ["unrecorded_copy"]
    explain(cloud)
    assert kinds(cloud) == []
