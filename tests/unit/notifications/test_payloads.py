"""Payloads have the keys and versions that Nova publishes, and nothing that is secret."""

from __future__ import annotations

import json

import msgspec
import pytest

from kilonova.domain.cause import Cause
from kilonova.domain.details import Details
from kilonova.domain.guest_contents import PublicKey
from kilonova.domain.network import Vif, VifAddress
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor, to_json
from kilonova.domain.volume import ServerVolume
from kilonova.engine.course import Problem
from kilonova.engine.notification_payloads import (
    VERSIONS,
    compute_task_payload,
    instance_payload,
    service_payload,
)
from kilonova.operations import REGISTRY
from kilonova.store.new_server import new_server
from tests.unit.notifications.published import EVENTS, OBJECTS, check_objects

CAUSE = Cause(user_id="u", project_id="p", through="api", request_id="req-1")
PROBLEM = Problem(code="no_valid_host", message="No valid host was found.", step="select_destinations")
DETAILS = Details(
    metadata={"k": "v"},
    tags=["t"],
    hostname="web",
    key_name="key",
    public_key=PublicKey("key", "ssh-rsa AAAA nobody"),
    user_data="SEALED-USER-DATA",
    personality="SEALED-FILES",
    image_properties={"hw_architecture": "x86_64", "secret_of_ours": "x"},
    scheduler_hints={"group": "g", "different_host": ["a", "b"]},
)


def server(**columns):
    spec = ServerSpec(
        project_id="p",
        user_id="u",
        name="web",
        image="img",
        created_at=1351518131.5,
        flavor=Flavor("small", 1, 1024, 10, id="1"),
        details=DETAILS,
    )
    made = new_server("178b0921-8f85-4257-88b6-2e743b5a975c", 1, spec, vm_state="active")
    address = VifAddress(address="192.0.2.3", version=4, subnet_id="s")
    vif = Vif(port_id="ce531f90-199f-48c0", network_id="n", network_name="private", mac="fa:16:3e:4c:2c:30")
    volume = ServerVolume(id="1", volume_id="v", device="/dev/vdb", is_root=True)
    documents = {
        "network_info": to_json([msgspec.structs.replace(vif, addresses=[address])]),
        "volume_info": to_json([volume]),
    }
    return made.changed({**documents, "host": "host1", "power_state": 1, **columns})


def test_every_event_of_the_registry_is_published_and_every_published_one_is_sent():
    sent = {"service.update"}
    for operation in REGISTRY.values():
        sent |= {f"compute_task.{operation.task}.error"} if operation.task else set()
        for one in operation.notifications:
            phases = [".start", ".end", *([".error"] if one.fails_from else [])] if one.has_phases else [""]
            sent |= {f"instance.{one.name}{phase}" for phase in phases}
    assert sent == EVENTS.keys()


def test_steps_that_begin_and_end_notifications_exist():
    for operation in REGISTRY.values():
        for one in operation.notifications:
            for step in filter(None, (one.begins, one.ends, one.fails_from)):
                assert step in [each.name for each in operation.steps], (operation.name, step)


def test_versions():
    assert {name: version for name, (version, _) in OBJECTS.items()} == VERSIONS


def test_servers():
    inner = {"FlavorPayload", "IpPayload", "BlockDevicePayload"}
    assert check_objects(instance_payload(server(), CAUSE, "delete", None)) == {"InstanceActionPayload", *inner}
    rebuilt = instance_payload(server(), CAUSE, "rebuild", PROBLEM)
    assert check_objects(rebuilt) == {"InstanceActionRebuildPayload", "ExceptionPayload", *inner}
    created = instance_payload(server(), CAUSE, "create", None)
    assert check_objects(created) == {"InstanceCreatePayload", "KeypairPayload", *inner}
    data = created["nova_object.data"]
    assert (data["created_at"], data["power_state"], data["locked"]) == ("2012-10-29T13:42:11Z", "running", False)
    assert data["ip_addresses"][0]["nova_object.data"]["device_name"] == "tapce531f90-19"
    assert data["block_devices"][0]["nova_object.data"]["boot_index"] == 0


def test_a_deleted_server_has_no_addresses_and_no_devices():
    gone = server(deleted=1, terminated_at=1351518131.0, vm_state="deleted")
    data = instance_payload(gone, CAUSE, "delete", None)["nova_object.data"]
    assert (data["ip_addresses"], data["block_devices"]) == ([], [])
    assert data["deleted_at"] == data["terminated_at"] == "2012-10-29T13:42:11Z"


def test_tasks_and_services():
    task = compute_task_payload(server(), PROBLEM)
    images = {"ImageMetaPayload", "ImageMetaPropsPayload"}
    assert check_objects(task) == {
        "ComputeTaskPayload",
        "RequestSpecPayload",
        "FlavorPayload",
        "ExceptionPayload",
        *images,
    }
    spec = task["nova_object.data"]["request_spec"]["nova_object.data"]
    assert spec["scheduler_hints"] == {"group": ["g"], "different_host": ["a", "b"]}
    assert spec["image"]["nova_object.data"]["properties"]["nova_object.data"] == {"hw_architecture": "x86_64"}
    host = {"name": "host1", "disabled": 1, "disabled_reason": "x", "forced_down": 0, "last_seen": 0.0, "id": "i"}
    assert check_objects(service_payload(host)) == {"ServiceStatusPayload"}


def test_nothing_that_is_sealed_is_in_them():
    for name in ("create", "rebuild", "delete"):
        assert "SEALED" not in json.dumps(instance_payload(server(), CAUSE, name, PROBLEM))
    assert "SEALED" not in json.dumps(compute_task_payload(server(), PROBLEM))


def test_a_periodic_task_has_no_initiator():
    nobody = Cause(user_id="", project_id="", through="periodic", request_id="req-1")
    data = instance_payload(server(), nobody, "delete", None)["nova_object.data"]
    assert (data["request_id"], data["action_initiator_user"], data["action_initiator_project"]) == (None, None, None)


def data_of(name="delete", problem=None, cause=CAUSE, details=None, **columns):
    columns |= {} if details is None else {"details": to_json(msgspec.structs.replace(DETAILS, **details))}
    return instance_payload(server(**columns), cause, name, problem)["nova_object.data"]


@pytest.mark.parametrize(
    ("details", "key", "value"),
    [
        ({}, "host_name", "web"),
        ({"hostname": ""}, "host_name", None),
        ({"reservation_id": "r-1"}, "reservation_id", "r-1"),
        ({"reservation_id": ""}, "reservation_id", None),
        ({}, "architecture", "x86_64"),
        ({"image_properties": {"architecture": "arm"}}, "architecture", "arm"),
        ({"image_properties": {"architecture": "arm", "hw_architecture": "x86"}}, "architecture", "x86"),
        ({"image_properties": {}}, "architecture", None),
        ({"image_properties": {"os_type": "linux"}}, "os_type", "linux"),
        ({"availability_zone": "here", "pinned_zone": "pinned"}, "availability_zone", "here"),
        ({"availability_zone": None, "pinned_zone": "pinned"}, "availability_zone", "pinned"),
        ({"locked_by": None}, "locked", False),
        ({"locked_by": "owner"}, "locked", True),
    ],
)
def test_what_is_not_known_of_a_server_is_null(details, key, value):
    assert data_of(details=details)[key] == value


@pytest.mark.parametrize(
    ("columns", "key", "value"),
    [
        ({"power_state": 0}, "power_state", "pending"),
        ({"power_state": 4}, "power_state", "shutdown"),
        ({"power_state": 99}, "power_state", "pending"),
        ({"terminated_at": 1351518131.0}, "deleted_at", None),
        ({"terminated_at": None}, "terminated_at", None),
        ({"launched_at": 1351518131.0}, "launched_at", "2012-10-29T13:42:11Z"),
    ],
)
def test_states_and_times(columns, key, value):
    assert data_of(**columns)[key] == value


@pytest.mark.parametrize(("user", "project", "request_id"), [("u", "p", "req-1"), ("u", "", None), ("", "p", None)])
def test_a_request_is_named_with_its_initiator(user, project, request_id):
    cause = Cause(user_id=user, project_id=project, through="api", request_id="req-1")
    data = data_of(cause=cause)
    assert (data["request_id"], data["action_initiator_user"], data["action_initiator_project"]) == (
        request_id,
        user or None,
        project or None,
    )


def test_only_fixed_addresses_are_the_servers_own():
    vif = Vif(port_id="ce531f90-199f-48c0", network_id="n", network_name="private", mac="fa:16:3e:4c:2c:30")
    addresses = [VifAddress(address="192.0.2.3", version=4, subnet_id="s")]
    addresses += [VifAddress(address="198.51.100.7", version=4, subnet_id="s", kind="floating")]
    shown = data_of(network_info=to_json([msgspec.structs.replace(vif, addresses=addresses)]))["ip_addresses"]
    assert [one["nova_object.data"]["address"] for one in shown] == ["192.0.2.3"]


def test_a_volume_that_is_not_the_root_disk_has_no_place_in_the_boot_order():
    volume = ServerVolume(id="1", volume_id="v")
    (shown,) = data_of(volume_info=to_json([volume]))["block_devices"]
    assert (shown["nova_object.data"]["boot_index"], shown["nova_object.data"]["device_name"]) == (None, None)


def test_only_a_rebuild_and_a_create_have_keys_of_their_own():
    trusted = {"trusted_image_certificates": ["c"]}
    assert data_of("rebuild", details=trusted)["trusted_image_certificates"] == ["c"]
    assert data_of("rebuild_scheduled", details=trusted)["trusted_image_certificates"] == ["c"]
    assert "trusted_image_certificates" not in data_of("delete", details=trusted)
    assert data_of("create", details={"public_key": None})["keypairs"] == []
    assert data_of("create")["keypairs"][0]["nova_object.data"]["fingerprint"] == "", "it is no key"


@pytest.mark.parametrize(
    ("code", "name"), [("no_valid_host", "NoValidHost"), ("claim_refused", "NoValidHost"), ("broken", "broken")]
)
def test_a_failure_has_novas_name_where_there_is_one(code, name):
    fault = data_of(problem=Problem(code=code, message="why", step="claim"))["fault"]["nova_object.data"]
    assert (fault["exception"], fault["exception_message"], fault["function_name"]) == (name, "why", "claim")
    assert data_of()["fault"] is None


def test_the_state_of_a_task_is_the_servers_unless_it_is_said():
    assert compute_task_payload(server(), PROBLEM)["nova_object.data"]["state"] == "active"
    assert compute_task_payload(server(), PROBLEM, "error")["nova_object.data"]["state"] == "error"


@pytest.mark.parametrize(("image", "image_format", "disk_format"), [("img", "qcow2", "qcow2"), ("img", "", None)])
def test_the_image_of_a_request(image, image_format, disk_format):
    details = to_json(msgspec.structs.replace(DETAILS, image_format=image_format))
    task = compute_task_payload(server(image_ref=image, details=details), PROBLEM)["nova_object.data"]
    spec = task["request_spec"]["nova_object.data"]
    assert spec["image"]["nova_object.data"]["disk_format"] == disk_format
    none = compute_task_payload(server(image_ref=""), PROBLEM)["nova_object.data"]
    assert none["request_spec"]["nova_object.data"]["image"] is None
