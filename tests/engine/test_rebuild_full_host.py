"""Rebuild on a host without room for the disks of two copies: the old one goes first, and is said to be gone."""

import pytest

from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.flavors import ROOMY


@pytest.fixture
def full(cloud):
    """A cloud with one host, which is full, and a server on it."""
    made = cloud(hosts=1)
    server, _ = made.make(flavor=ROOMY)
    made.hardware.host("host1").has_room = False
    return made, server


def test_the_old_copy_is_removed_once_it_is_off(full):
    cloud, server = full
    held = cloud.records().held
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "done"
    assert [name for name, _, _, _ in cloud.steps(operation)] == [
        *("rebuild_server", "make_copy", "stop_old_copy", "make_room", "make_only_copy", "grant_runner"),
        "rebuild_instance",
    ]
    assert [found.marker for found in cloud.hardware.survey(server)] == ["image:other"]
    assert cloud.records().held == held and check(cloud) == []


def test_ephemeral_disks_that_the_owner_keeps_outlive_the_old_copy(full):
    cloud, server = full
    cloud.hardware.write(server, "cache", name="ephemeral0")
    cloud.submit("rebuild", server, image="other", preserve_ephemeral=True)
    cloud.loop.run_for(60.0)
    disk = cloud.hardware.disk(cloud.hardware.host("host1"), server, 2)
    assert disk.described()[1:] == ["ephemeral0=5G:blank+cache", "swap=512M:blank"]
    assert check(cloud) == []


@pytest.mark.parametrize("verb", ["room_for_rebuild", "ensure_ephemeral"])
def test_nothing_is_lost_before_the_old_copy_is_removed(full, verb):
    cloud, server = full
    cloud.hardware.fail("host1", verb, times=1, how="refuse")
    operation = cloud.submit("rebuild", server, image="other", preserve_ephemeral=True).operation_id
    cloud.loop.run_for(120.0)
    assert cloud.operation(operation)["state"] == "undone"
    assert (cloud.server(server)["vm_state"], cloud.server(server)["image_ref"]) == ("active", "img")
    assert [found.marker for found in cloud.hardware.survey(server)] == ["image:img"]
    assert cloud.hardware.running(server) == [("host1", 1)] and check(cloud) == []


def test_a_disk_that_cannot_be_made_at_first_is_tried_again(full):
    cloud, server = full
    cloud.hardware.fail("host1", "ensure_disk", times=3)
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(120.0)
    assert cloud.operation(operation)["state"] == "done" and check(cloud) == []


@pytest.mark.parametrize("verb", ["ensure_disk", "ensure_power"])
def test_a_new_copy_that_fails_for_good_leaves_an_error_that_another_rebuild_ends(full, verb):
    """Past the point of no return: nobody says that the server is as it was."""
    cloud, server = full
    if verb == "ensure_disk":
        cloud.hardware.fail("host1", verb, how="refuse")
    operation = cloud.submit("rebuild", server, image="other").operation_id
    while cloud.hardware.running(server):
        cloud.loop.run_for(0.01)
    if verb == "ensure_power":  # it has been stopped
        cloud.hardware.fail("host1", verb, how="refuse")
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    assert cloud.operation(operation)["state"] == "failed"
    assert (row["vm_state"], row["image_ref"], row["runner_copy"]) == ("error", "other", row["copy"])
    (fault,) = cloud.records().table("faults")
    assert fault["message"].startswith("The server could not be rebuilt. Its host had no room for both disks")
    cloud.submit("rebuild", server, image="other")
    cloud.loop.run_for(60.0)
    assert cloud.server(server)["vm_state"] == "active" and check(cloud) == []
