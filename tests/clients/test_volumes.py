"""Volumes by the real clients: the `openstack` command, and openstacksdk as a program uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openstack import exceptions

from tests.clients.conftest import Client
from tests.clients.test_sdk import clouds as clouds
from tests.support.program import until

SECONDS = 60.0


def settled(who: Client, *words: Any) -> str:
    """How a volume or a snapshot stands once nothing is under way."""

    def look() -> str:
        status = str(who.json(*words)["status"])
        return "" if status.endswith("ing") else status

    return str(until(look, SECONDS, f"{words} has settled"))


def test_the_life_of_a_volume(demo: Client) -> None:
    made = demo.json("volume", "create", "--size", 1, "--property", "a=b", "data")
    assert (made["size"], made["status"], made["type"]) == (1, "creating", "__DEFAULT__")
    assert settled(demo, "volume", "show", "data") == "available"
    demo.ok("volume", "set", "--size", 2, "--name", "store", "--description", "of things", "--bootable", "data")
    assert settled(demo, "volume", "show", "store") == "available"
    shown = demo.json("volume", "show", "store")
    assert (shown["size"], shown["description"], shown["properties"]) == (2, "of things", {"a": "b"})
    demo.ok("volume", "unset", "--property", "a", "store")
    demo.ok("volume", "set", "--read-only", "store")
    demo.ok("volume", "snapshot", "create", "--volume", "store", "shot")
    assert settled(demo, "volume", "snapshot", "show", "shot") == "available"
    demo.ok("volume", "create", "--snapshot", "shot", "again")
    demo.ok("volume", "create", "--source", "store", "copy")
    assert {settled(demo, "volume", "show", name) for name in ("again", "copy")} == {"available"}
    assert {row["Name"]: row["Size"] for row in demo.json("volume", "list")} == {"store": 2, "again": 2, "copy": 2}
    assert "has 1 snapshots" in demo.refused("volume", "delete", "store")
    demo.ok("volume", "snapshot", "delete", "shot")
    until(lambda: not demo.json("volume", "snapshot", "list"), SECONDS, "the snapshot is gone")
    for name in ("store", "again", "copy"):
        demo.ok("volume", "delete", name)
    until(lambda: not demo.json("volume", "list"), SECONDS, "all volumes are gone")


def test_from_an_image_and_back(demo: Client, tmp_path: Path) -> None:
    file = tmp_path / "disk.raw"
    file.write_bytes(b"kilonova" * 1000)
    demo.ok("image", "create", "source", "--file", file, "--disk-format", "raw", "--container-format", "bare")
    made = demo.json("volume", "create", "--size", 1, "--image", "source", "booted")
    assert settled(demo, "volume", "show", "booted") == "available"
    assert demo.json("volume", "show", "booted")["volume_image_metadata"]["image_name"] == "source"
    demo.ok("image", "create", "--volume", made["id"], "--disk-format", "qcow2", "back")
    assert until(lambda: demo.json("image", "show", "back")["status"] == "active", SECONDS, "the image is whole")
    back = demo.json("image", "show", "back")
    assert back["disk_format"] == "qcow2" and back["size"] < 1024**2 and back["virtual_size"] == 1024**3
    demo.ok("volume", "create", "--size", 1, "--image", "back", "third")
    assert settled(demo, "volume", "show", "third") == "available"
    demo.ok("volume", "delete", "booted", "third")
    demo.ok("image", "delete", "source", "back")


def test_types_quotas_and_services(admin: Client, demo: Client) -> None:
    admin.ok("volume", "type", "create", "--private", "--property", "multiattach=<is> True", "shared")
    assert "shared" not in demo.ok("volume", "type", "list")
    admin.ok("volume", "type", "set", "--project", "demo", "shared")
    made = demo.json("volume", "create", "--size", 1, "--type", "shared", "many")
    assert made["multiattach"] is True
    assert settled(demo, "volume", "show", "many") == "available"
    admin.ok("quota", "set", "--gigabytes", 1, "demo")
    assert "quota is 1G and 1G has been consumed" in demo.refused("volume", "create", "--size", 1, "more")
    admin.ok("quota", "set", "--gigabytes", 1000, "demo")
    admin.ok("volume", "set", "--state", "error", made["id"])
    assert demo.json("volume", "show", "many")["status"] == "error"
    demo.ok("volume", "delete", "many")
    until(lambda: not demo.json("volume", "list"), SECONDS, "the volume is gone")
    admin.ok("volume", "type", "delete", "shared")
    (service,) = admin.json("volume", "service", "list", "--service", "cinder-volume")
    assert (service["Status"], service["State"]) == ("enabled", "up")
    assert demo.json("availability", "zone", "list", "--volume")[0]["Zone Name"] == "nova"
    limits = {row["Name"]: row["Value"] for row in demo.json("limits", "show", "--absolute")}
    assert limits["max_total_volumes"] == 10


def test_servers_have_volumes(demo: Client) -> None:
    volume = demo.json("volume", "create", "--size", 1, "held")["id"]
    options = ("--image", "cirros-sim", "--flavor", "m1.tiny", "--nic", "none", "--wait")
    server = demo.json("server", "create", "holder", *options)["id"]
    words = ("--os-volume-api-version", "3.71", "volume", "attachment")
    where = ("--server", server, "--connect", "--host", "host1", "--mountpoint", "/dev/vdb")
    held = demo.json(*words, "create", volume, *where)
    assert held["Status"] == "attaching" and "auth_password" in str(held["Properties"])
    demo.ok(*words, "complete", held["ID"])
    assert [row["ID"] for row in demo.json(*words, "list")] == [held["ID"]]
    assert "status must be available" in demo.refused("server", "add", "volume", "holder", "held")
    demo.ok(*words, "delete", held["ID"])
    given = demo.json("server", "add", "volume", "holder", "held", "--tag", "data", "--enable-delete-on-termination")
    assert (given["Volume ID"], given["Device"], given["Tag"]) == (volume, "/dev/vdb", "data")
    assert settled(demo, "volume", "show", "held") == "in-use"
    (listed,) = demo.json("server", "volume", "list", "holder")
    assert (listed["Volume ID"], listed["Delete On Termination?"]) == (volume, True)
    demo.ok("server", "volume", "set", "holder", "held", "--preserve-on-termination")
    demo.ok("server", "remove", "volume", "holder", "held")
    until(lambda: demo.json("volume", "show", "held")["status"] == "available", SECONDS, "the volume is free")
    demo.ok("volume", "delete", "held")
    demo.ok("server", "delete", "holder", "--wait")


def test_servers_boot_from_volumes(demo: Client) -> None:
    options = ("--flavor", "m1.tiny", "--nic", "none", "--wait")
    data = "source_type=blank,destination_type=volume,volume_size=1,delete_on_termination=true,tag=data"
    made = demo.json(
        "server", "create", "boxed", "--image", "cirros-sim", "--boot-from-volume", 1, "--block-device", data, *options
    )
    assert made["status"] == "ACTIVE" and "booted from volume" in str(made["image"])
    root, more = demo.json("server", "volume", "list", "boxed")
    assert (root["Device"], more["Device"], more["Tag"]) == ("/dev/vda", "/dev/vdb", "data")
    assert "cannot be detached" in demo.refused("server", "remove", "volume", "boxed", root["Volume ID"])
    demo.ok("server", "delete", "boxed", "--wait")
    until(lambda: len(demo.json("volume", "list")) == 1, SECONDS, "the data went with the server, the root did not")
    again = demo.json("server", "create", "again", "--volume", root["Volume ID"], *options)
    assert [one["id"] for one in again["volumes_attached"]] == [root["Volume ID"]]
    demo.ok("server", "delete", "again", "--wait")
    demo.ok("volume", "delete", root["Volume ID"])


def test_the_sdk_does_the_same(clouds: tuple[Any, Any]) -> None:
    admin, demo = clouds
    storage = demo.block_storage
    volume = storage.create_volume(size=1, name="sdk", metadata={"colour": "red"})
    volume = storage.wait_for_status(volume, "available", wait=60, interval=0.2)
    snapshot = storage.create_snapshot(volume_id=volume.id, name="sdk-shot")
    snapshot = storage.wait_for_status(snapshot, "available", wait=60, interval=0.2)
    storage.extend_volume(volume, 2)
    # The SDK waits only if what it was given is not there yet, and it was given the volume as it was before.
    volume = storage.wait_for_status(storage.get_volume(volume.id), "available", wait=60, interval=0.2)
    assert storage.get_volume(volume.id).size == 2
    copy = storage.create_volume(snapshot_id=snapshot.id, name="sdk-copy", size=1)
    storage.wait_for_status(copy, "available", wait=60, interval=0.2)
    assert {one.name for one in storage.volumes()} == {"sdk", "sdk-copy"}
    assert [one.name for one in storage.volumes(limit=1)] == ["sdk-copy", "sdk"], "page by page, the newest first"
    assert storage.get_limits().absolute.total_volumes_used == 2
    assert storage.get_quota_set(demo.current_project_id).volumes == 10
    assert [one.name for one in storage.types()] == ["__DEFAULT__"]
    with pytest.raises(exceptions.BadRequestException):
        storage.delete_volume(volume)
    storage.delete_snapshot(snapshot)
    storage.wait_for_delete(snapshot, wait=60, interval=0.2)
    for one in (volume, copy):
        storage.delete_volume(one)
        storage.wait_for_delete(one, wait=60, interval=0.2)
    _the_sdk_attaches_a_volume(demo)
    secret = admin.block_storage.create_volume(size=1, name="theirs")
    with pytest.raises(exceptions.NotFoundException):
        storage.get_volume(secret.id)
    admin.block_storage.wait_for_status(secret, "available", wait=60, interval=0.2)
    admin.block_storage.delete_volume(secret)


def _the_sdk_attaches_a_volume(demo: Any) -> None:
    image, flavor = demo.image.find_image("cirros-sim"), demo.compute.find_flavor("m1.tiny")
    volume = demo.block_storage.create_volume(size=1, name="sdk-data")
    server = demo.compute.create_server(name="sdk", image_id=image.id, flavor_id=flavor.id, networks="none")
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    demo.block_storage.wait_for_status(volume, "available", wait=60, interval=0.2)
    made = demo.compute.create_volume_attachment(server, volume_id=volume.id, tag="data")
    assert (made.volume_id, made.device, made.tag) == (volume.id, "/dev/vdb", "data")
    demo.block_storage.wait_for_status(volume, "in-use", wait=60, interval=0.2)
    (shown,) = demo.compute.volume_attachments(server)
    assert shown.attachment_id and shown.bdm_id and shown.delete_on_termination is False
    demo.compute.update_volume_attachment(server, volume.id, delete_on_termination=True)
    assert demo.compute.get_volume_attachment(server, volume.id).delete_on_termination is True
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, wait=60, interval=0.2)
    demo.block_storage.wait_for_delete(volume, wait=60, interval=0.2)
