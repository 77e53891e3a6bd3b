"""What os-instance-actions tells of an operation that is left in the middle of a step: no event stays open."""

from kilonova.hosts.states import declare_down
from kilonova.sim.invariants.invariants import check

BUILD = "compute__do_build_and_run_instance"


def events_of(cloud, operation):
    found = [row for row in cloud.records().table("action_events") if row["operation_id"] == operation]
    return {row["event"]: (row["result"], row["details"], row["finished_at"] is not None) for row in found}


def message_of(cloud, operation):
    return next(row["message"] for row in cloud.records().table("actions") if row["operation_id"] == operation)


def test_of_a_cancelled_create(cloud):
    cloud = cloud(boot_seconds=30.0)
    _, operation = cloud.make(wait=5.0)
    assert events_of(cloud, operation)[BUILD] == (None, None, False)
    cloud.cancel(operation)
    assert events_of(cloud, operation)[BUILD] == ("Error", "The operation was cancelled.", True)
    cloud.loop.run_for(60.0)
    assert message_of(cloud, operation) == "Error"
    assert check(cloud) == []


def test_of_a_create_whose_server_is_deleted(cloud):
    cloud = cloud(boot_seconds=30.0)
    server, operation = cloud.make(wait=5.0)
    deleting = cloud.submit("delete", server).operation_id
    cloud.loop.run_for(60.0)
    assert events_of(cloud, operation)[BUILD] == ("Error", "The operation was superseded by delete.", True)
    assert message_of(cloud, operation) == "Error"
    assert events_of(cloud, deleting)["compute_terminate_instance"][0] == "Success"
    assert check(cloud) == []


def test_of_a_migration_whose_server_is_evacuated(cloud):
    cloud = cloud(copy_seconds=30.0)
    server, _ = cloud.make()
    migrating = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(5.0)
    left = next(event for event, (result, *_) in events_of(cloud, migrating).items() if result is None)
    host = cloud.server(server)["host"]
    cloud.hardware.switch_power(host, False)
    cloud.do(lambda engine: declare_down(engine, host))
    cloud.submit("evacuate", server)
    assert events_of(cloud, migrating)[left] == ("Error", "The operation was superseded by evacuate.", True)


def test_of_a_host_that_is_declared_down(cloud):
    cloud = cloud(copy_seconds=30.0)
    server, _ = cloud.make()
    migrating = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(5.0)
    host = cloud.server(server)["host"]
    cloud.hardware.switch_power(host, False)
    cloud.do(lambda engine: declare_down(engine, host))
    cloud.loop.run_for(60.0)
    assert cloud.operation(migrating)["live"] == 0
    assert all(finished for *_, finished in events_of(cloud, migrating).values())
