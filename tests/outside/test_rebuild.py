"""Rebuild seen from outside: a running cloud, asked through the Compute API.

| story | test |
|---|---|
| R1 | test_r1_another_image_on_the_same_host |
| R2 | test_r2_the_host_fails |
| R3 | tests/conversations/compute/server-rebuild.yaml; test_r3_the_scheduler_refuses_and_nothing_is_touched |
| R4 | test_r4_the_host_is_down |
| R5 | tests/conversations/compute/server-rebuild-volume.yaml; test_r5_the_host_dies_while_its_volume_is_re_imaged |
"""

from __future__ import annotations

from tests.outside.operator import SECONDS, Operator
from tests.outside.test_evacuate import TINY, image_of
from tests.support.program import until


def test_r1_another_image_on_the_same_host(local: Operator) -> None:
    server, volume = local.create("r1", "host1"), local.volume("r1-data")
    local.attach(server, volume)
    local.write(server, "mine")
    local.write(server, "data", volume)
    before, ports = local.server(server), local.ports(server)
    local.rebuild(server, "cirros-sim-alt")
    seen = local.settled(server, "host1")
    assert {state[0] for state in seen} <= {"ACTIVE", "REBUILD"} and ("REBUILD", "rebuild_spawning", "host1") in seen
    after = local.server(server)
    assert after["image"]["id"] == local.images["cirros-sim-alt"]
    assert (after["id"], after["addresses"], after["flavor"]) == (before["id"], before["addresses"], before["flavor"])
    assert (local.ports(server), local.allocations(server)) == (ports, {"host1": TINY})
    line = local.console(server)
    assert image_of(local, "cirros-sim-alt") in line and "data" in line and "mine" not in line
    action, message, events = local.action(server)
    assert (action, message) == ("rebuild", None)
    assert [event[:2] for event in events] == [("rebuild_server", "Success"), ("compute_rebuild_instance", "Success")]
    assert local.moves(server) == [], "a rebuild is not a migration"
    local.delete(server)
    local.volume_is(volume, "available")


def test_r2_the_host_fails(local: Operator) -> None:
    server = local.create("r2", "host1")
    local.write(server, "mine")
    line, ports = local.console(server), local.ports(server)
    local.switch("host1", fail={"verb": "ensure_disk", "times": 1, "how": "refuse"})
    operation = local.rebuild(server, "cirros-sim-alt")
    assert local.http.ended(operation)["state"] == "undone"
    assert local.state(server) == ("ACTIVE", None, "host1")
    assert local.server(server)["image"]["id"] == local.images["cirros-sim"], "the image is put back"
    assert (local.allocations(server), local.ports(server)) == ({"host1": TINY}, ports)
    assert local.console(server) == line, "the old guest was not even restarted"
    assert local.action(server)[:2] == ("rebuild", "Error")
    local.rebuild(server, "cirros-sim-alt")
    local.settled(server, "host1")
    assert image_of(local, "cirros-sim-alt") in local.console(server), "the next one works"
    local.delete(server)


def test_r3_the_scheduler_refuses_and_nothing_is_touched(local: Operator) -> None:
    body = {"name": "strange", "disk_format": "raw", "container_format": "bare", "hw_architecture": "aarch64"}
    local.images["strange"] = local.change("POST", "/image/v2/images", body)["id"]
    path = f"/image/v2/images/{local.images['strange']}"
    octets = {"Content-Type": "application/octet-stream"}
    assert local.http.ask("PUT", f"{path}/file", b"some", octets).status == 204
    server = local.create("r3", "host1")
    line = local.console(server)
    operation = local.rebuild(server, "strange")
    assert local.http.ended(operation)["state"] == "undone"
    assert local.state(server) == ("ACTIVE", None, "host1")
    assert local.server(server)["image"]["id"] == local.images["cirros-sim"]
    assert (local.console(server), local.allocations(server)) == (line, {"host1": TINY})
    assert "hw_architecture=aarch64" in local.action(server)[2][0][2]
    local.delete(server)
    local.change("DELETE", path)


def test_r4_the_host_is_down(local: Operator) -> None:
    server = local.create("r4", "host1")
    local.write(server, "mine")
    local.dead("host1")
    refused = local.act(server, rebuild={"imageRef": local.images["cirros-sim-alt"]})
    assert refused.status == 409, refused.body
    assert local.state(server) == ("ACTIVE", None, "host1")
    assert local.server(server)["image"]["id"] == local.images["cirros-sim"]
    local.back("host1")
    until(lambda: "boot=2" in local.console(server), SECONDS, "it runs again")
    assert "mine" in local.console(server)
    local.delete(server)


def test_r5_the_host_dies_while_its_volume_is_re_imaged(local: Operator) -> None:
    """From 2.93 on. The evacuation waits until the volume is whole, and the server boots from the new content."""
    root = {"source_type": "image", "uuid": local.images["cirros-sim"], "boot_index": 0, "volume_size": 1}
    devices = [{**root, "destination_type": "volume", "delete_on_termination": True}]
    server = local.create("r5", "host1", imageRef="", block_device_mapping_v2=devices)
    local.write(server, "mine")
    local.rebuild(server, "cirros-sim-alt", "2.93")
    local.dead("host1")
    local.evacuate(server, host="host2")
    local.settled(server, "host2")
    line = local.console(server)
    (attached,) = local.server(server)["os-extended-volumes:volumes_attached"]
    held = local.volume_is(attached["id"], "in-use")["volume_image_metadata"]["image_id"]
    assert f"root=image:{held}" in line, "what it boots from is what the volume says that it holds"
    local.back("host1")
    local.completed(server)
    local.delete(server)
