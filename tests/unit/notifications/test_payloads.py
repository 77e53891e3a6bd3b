"""Payloads have the keys and versions that Nova publishes, and nothing that is secret."""

from __future__ import annotations

import json

import msgspec

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
