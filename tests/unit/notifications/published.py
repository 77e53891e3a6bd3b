"""What Nova publishes of the notifications that this cloud sends: facts of its samples (master, August 2026)."""

from __future__ import annotations

from typing import Any


def words(text: str) -> set[str]:
    return set(text.split())


SERVER = words(
    "action_initiator_project action_initiator_user architecture auto_disk_config availability_zone "
    "block_devices created_at deleted_at display_description display_name fault flavor host "
    "host_name image_uuid ip_addresses kernel_id key_name launched_at locked locked_reason metadata "
    "node os_type power_state progress ramdisk_id request_id reservation_id shares state task_state "
    "tenant_id terminated_at updated_at user_id uuid"
)
# Name of the object, its version, its keys; None: any.
OBJECTS: dict[str, tuple[str, set[str] | None]] = {
    "InstanceActionPayload": ("1.9", SERVER),
    "InstanceActionRebuildPayload": ("1.10", SERVER | {"trusted_image_certificates"}),
    "InstanceCreatePayload": ("1.13", SERVER | {"instance_name", "keypairs", "tags", "trusted_image_certificates"}),
    "ComputeTaskPayload": ("1.0", {"instance_uuid", "reason", "request_spec", "state"}),
    "ServiceStatusPayload": (
        "1.1",
        words(
            "availability_zone binary disabled disabled_reason forced_down host last_seen_up report_count "
            "topic uuid version"
        ),
    ),
    "ExceptionPayload": ("1.1", {"exception", "exception_message", "function_name", "module_name", "traceback"}),
    "FlavorPayload": (
        "1.4",
        words(
            "description disabled ephemeral_gb extra_specs flavorid is_public memory_mb name projects "
            "root_gb rxtx_factor swap vcpu_weight vcpus"
        ),
    ),
    "IpPayload": ("1.0", words("address device_name label mac meta port_uuid version")),
    "BlockDevicePayload": ("1.0", words("boot_index delete_on_termination device_name tag volume_id")),
    "KeypairPayload": ("1.0", words("fingerprint name public_key type user_id")),
    "RequestSpecPayload": (
        "1.1",
        words(
            "availability_zone flavor force_hosts force_nodes ignore_hosts image instance_group "
            "instance_uuid num_instances numa_topology pci_requests project_id requested_destination retry "
            "scheduler_hints security_groups user_id"
        ),
    ),
    "ImageMetaPayload": (
        "1.0",
        words(
            "checksum container_format created_at direct_url disk_format id min_disk min_ram name owner "
            "properties protected size status tags updated_at virtual_size visibility"
        ),
    ),
    "ImageMetaPropsPayload": ("1.19", None),  # those that the image has
}
ACTION, REBUILD, CREATE, TASK = (
    "InstanceActionPayload",
    "InstanceActionRebuildPayload",
    "InstanceCreatePayload",
    "ComputeTaskPayload",
)
# Event, its payload, its priority, who publishes it. A delete of a server without a host is the API's.
EVENTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "instance.create.start": (CREATE, "INFO", ("nova-compute",)),
    "instance.create.end": (CREATE, "INFO", ("nova-compute",)),
    "instance.create.error": (CREATE, "ERROR", ("nova-compute",)),
    "instance.delete.start": (ACTION, "INFO", ("nova-compute", "nova-api")),
    "instance.delete.end": (ACTION, "INFO", ("nova-compute", "nova-api")),
    "instance.evacuate": (ACTION, "INFO", ("nova-api",)),
    "instance.power_off.start": (ACTION, "INFO", ("nova-compute",)),
    "instance.power_off.end": (ACTION, "INFO", ("nova-compute",)),
    "instance.power_on.start": (ACTION, "INFO", ("nova-compute",)),
    "instance.power_on.end": (ACTION, "INFO", ("nova-compute",)),
    "instance.rebuild_scheduled": (REBUILD, "INFO", ("nova-conductor",)),
    "instance.rebuild.start": (REBUILD, "INFO", ("nova-compute",)),
    "instance.rebuild.end": (REBUILD, "INFO", ("nova-compute",)),
    "instance.rebuild.error": (REBUILD, "ERROR", ("nova-compute",)),
    "instance.resize.start": (ACTION, "INFO", ("nova-compute",)),
    "instance.resize.end": (ACTION, "INFO", ("nova-compute",)),
    "instance.resize.error": (ACTION, "ERROR", ("nova-compute",)),
    "instance.resize_confirm.start": (ACTION, "INFO", ("nova-compute",)),
    "instance.resize_confirm.end": (ACTION, "INFO", ("nova-compute",)),
    "instance.resize_revert.start": (ACTION, "INFO", ("nova-compute",)),
    "instance.resize_revert.end": (ACTION, "INFO", ("nova-compute",)),
    "compute_task.build_instances.error": (TASK, "ERROR", ("nova-conductor",)),
    "compute_task.migrate_server.error": (TASK, "ERROR", ("nova-conductor",)),
    "compute_task.rebuild_server.error": (TASK, "ERROR", ("nova-conductor",)),
    "service.update": ("ServiceStatusPayload", "INFO", ("nova-compute",)),
}
ENVELOPE = {"message_id", "publisher_id", "event_type", "priority", "timestamp", "payload"}


def check_message(message: dict[str, Any]) -> None:
    """Nova's receivers find what they look for, and nothing else."""
    assert message.keys() == ENVELOPE
    payload, priority, publishers = EVENTS[message["event_type"]]
    assert message["payload"]["nova_object.name"] == payload
    assert message["priority"] == priority
    service, _, host = message["publisher_id"].partition(":")
    assert service in publishers and host, message["publisher_id"]
    assert check_objects(message["payload"]) >= {payload}
    if message["event_type"].endswith(".error") and "fault" in message["payload"]["nova_object.data"]:
        assert message["payload"]["nova_object.data"]["fault"] is not None


def check_objects(value: Any) -> set[str]:
    """Returns the names of the objects in it."""
    if isinstance(value, list):
        return set().union(*map(check_objects, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(check_objects, value.values()))
    if "nova_object.name" not in value:
        return found
    assert set(value) == {f"nova_object.{key}" for key in ("name", "namespace", "version", "data")}
    version, keys = OBJECTS[value["nova_object.name"]]
    assert (value["nova_object.namespace"], value["nova_object.version"]) == ("nova", version)
    assert keys is None or set(value["nova_object.data"]) == keys, value["nova_object.name"]
    return found | {value["nova_object.name"]}
