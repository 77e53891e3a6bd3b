"""Rebuild: another image on the same host under the same id; whatever fails, one whole copy is there and owned."""

from dataclasses import replace

import msgspec
import pytest

from kilonova.domain.errors import Failed
from kilonova.engine.model import CONTROL
from kilonova.operations import REGISTRY
from kilonova.operations.rebuild import Rebuild
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.flavors import OFFER, PINNED, TOPOLOGY, VCPUS


@pytest.mark.parametrize("stopped", [False, True])
def test_the_new_copy_has_the_new_image_and_the_claims_stay(cloud, stopped):
    cloud = cloud()
    server, _ = cloud.make()
    if stopped:
        cloud.submit("stop", server)
        cloud.loop.run_for(20.0)
    held, host = cloud.records().held, cloud.server(server)["host"]
    operation = cloud.submit(
        "rebuild", server, image="other", details={"metadata": {"a": "b"}}, name="new"
    ).operation_id
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    assert cloud.operation(operation)["state"] == "done"
    assert (row["vm_state"], row["image_ref"], row["host"], row["name"]) == (
        *("stopped" if stopped else "active", "other"),
        *(host, "new"),
    )
    assert '"a":"b"' in row["details"]
    assert cloud.records().held == held, "no claim is made or moved"
    assert check(cloud) == []
    assert [copy["state"] for copy in cloud.records().table("copies")] == ["whole"]
    assert bool(cloud.hardware.running(server)) is not stopped
    assert [found.marker for found in cloud.hardware.survey(server)] == ["image:other"]


@pytest.mark.parametrize("stopped", [False, True])
def test_permission_to_run_has_a_step_of_its_own_and_no_commit(cloud, stopped):
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    if stopped:
        cloud.submit("stop", server)
        cloud.loop.run_for(20.0)
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(60.0)
    steps = [row for row in cloud.records().table("steps") if row["operation_id"] == operation]
    stop, grant, start = sorted(steps, key=lambda row: row["ordinal"])[2:5]
    assert [stop["name"], grant["name"], start["name"]] == ["stop_old_copy", "grant_runner", "rebuild_instance"]
    assert (grant["state"], grant["open"], grant["host"], grant["result"]) == ("done", 0, "", "{}")
    assert stop["ended_at"] == grant["created_at"] == grant["ended_at"] == start["taken_at"]


@pytest.mark.parametrize("error", [Failed("broken", "it is broken"), KeyError("copy")], ids=["failed", "unexpected"])
def test_a_step_that_fails_when_done_at_once_is_undone_like_any_other(cloud, monkeypatch, error):
    async def fail(ctx):
        ctx.set_server(runner_host="nowhere")
        raise error

    class Broken(Rebuild):
        steps = [replace(step, do=fail) if step.at_once else step for step in Rebuild.steps]

    monkeypatch.setitem(REGISTRY, "rebuild", Broken())
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "undone"
    assert ("grant_runner", "do", "", "failed") in cloud.steps(operation)
    assert cloud.hardware.running(server) == [("host1", 1)]
    assert check(cloud) == []


def test_a_step_that_is_done_at_once_shows_nothing_and_asks_nobody():
    found = [step for operation in REGISTRY.values() for step in operation.course if step.at_once]
    assert {step.name for step in found} == {"grant_runner"}
    for step in found:
        assert (step.on, step.only_rows) == (CONTROL, True)
        assert (step.events, step.task_state, step.record, step.no_return, step.with_secrets) == (
            (),
            None,
            None,
            False,
            False,
        )


@pytest.mark.parametrize("verb", ["ensure_disk", "ensure_defined", "ensure_power"])
def test_what_fails_leaves_the_old_copy_as_it_was(cloud, verb):
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    before = cloud.server(server)
    cloud.hardware.fail("host1", verb, times=1)
    operation = cloud.submit("rebuild", server, image="other").operation_id
    cloud.loop.run_for(120.0)
    row = cloud.server(server)
    assert cloud.operation(operation)["state"] == "undone"
    assert (row["image_ref"], row["copy"], row["vm_state"]) == (before["image_ref"], before["copy"], "active")
    assert [copy for _, copy in cloud.hardware.running(server)] == [before["copy"]]
    assert check(cloud) == []


def test_the_image_is_new_when_it_is_accepted_and_old_again_when_it_is_cancelled(cloud):
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    before = cloud.server(server)
    ask = {"image": "other", "image_properties": {"os": "new"}}
    operation = cloud.submit("rebuild", server, **ask).operation_id
    accepted = cloud.server(server)
    assert accepted["image_ref"] == "other" and '"os":"new"' in accepted["details"]
    cloud.cancel(operation)
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    assert cloud.operation(operation)["state"] == "cancelled"
    assert row["image_ref"] == before["image_ref"] and '"os"' not in row["details"]
    assert check(cloud) == []


def test_what_the_guest_is_made_of_goes_back_with_the_image_and_the_owners_word_stays(cloud):
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    first = {"key_name": "one", "user_data": "sealed one", "trusted_image_certificates": ["c1"]}
    of_image = {"image_properties": {"os": "old"}, "image_format": "raw", "image_marker": "m1"}
    cloud.submit("rebuild", server, image="other", details=first, **of_image)
    cloud.loop.run_for(60.0)
    assert {name: msgspec.json.decode(cloud.server(server)["details"])[name] for name in of_image} == of_image
    second = {"key_name": "two", "user_data": None, "trusted_image_certificates": ["c2"]}
    owners = {"metadata": {"a": "b"}, "description": "mine", "hostname": "h"}
    of_third = {"image_properties": {"hw_architecture": "aarch64"}, "image_format": "qcow2", "image_marker": "m2"}
    asked = {"name": "new", "details": {**second, **owners}, **of_third}
    operation = cloud.submit("rebuild", server, image="third", **asked).operation_id
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    details = msgspec.json.decode(row["details"])
    assert cloud.operation(operation)["state"] == "undone"
    assert (row["image_ref"], row["vm_state"], row["name"]) == ("other", "active", "new")
    assert {name: details[name] for name in first} == first
    assert {name: details[name] for name in owners} == owners
    assert {name: details[name] for name in of_image} == of_image
    assert check(cloud) == []


def test_the_same_image_does_not_ask_the_scheduler(cloud):
    """It runs there already, whatever the scheduler would say of it now."""
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    image = cloud.server(server)["image_ref"]
    asked = {"image": image, "image_properties": {"hw_architecture": "aarch64"}}
    operation = cloud.submit("rebuild", server, **asked).operation_id
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "done"
    assert check(cloud) == []


def test_it_needs_a_server_that_has_run():
    assert REGISTRY["rebuild"].from_states == {"active", "stopped", "error"}


@pytest.mark.parametrize("kind", ["reboot", "hard_reboot"])
def test_a_reboot_defines_the_guest_anew(cloud, kind):
    """Somebody has changed it by hand: what runs afterwards is what the records say."""
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    (guest,) = cloud.hardware.host("host1").guests.values()
    was = guest.spec
    guest.spec = msgspec.structs.replace(was, memory_mb=1, vcpus=99)
    cloud.submit(kind, server)
    cloud.loop.run_for(20.0)
    (guest,) = cloud.hardware.host("host1").guests.values()
    assert guest.spec == was and cloud.hardware.running(server) == [("host1", 1)]


def test_the_new_copy_has_the_hardware_of_the_old_one(cloud):
    """They never run together: a rebuild asks for nothing more of its host."""
    cloud = cloud(hosts=1, vcpus=VCPUS, topology=TOPOLOGY, offer=OFFER)
    server, _ = cloud.make(flavor=PINNED)
    (old,) = cloud.records().table("copies")
    assert old["claim"]
    cloud.submit("rebuild", server, image="another")
    cloud.loop.run_for(30.0)
    (new,) = cloud.records().table("copies")
    assert (new["copy"] > old["copy"], new["claim"]) == (True, old["claim"])
