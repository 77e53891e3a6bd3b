"""openstacksdk does the same errands as a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstack import exceptions

from tests.support.program import Cloud


@pytest.fixture(scope="module")
def clouds(cloud: Cloud) -> Iterator[tuple[Any, Any]]:
    files = [str(Path(cloud.data) / "clouds.yaml")]
    config = openstack.config.OpenStackConfig(config_files=files)
    made = [openstack.connection.Connection(config=config.get_one(name)) for name in ("kilonova", "kilonova-demo")]
    yield made[0], made[1]
    for connection in made:
        connection.close()


def test_a_server_with_everything_around_it(clouds: tuple[Any, Any]) -> None:
    _, demo = clouds
    network = demo.network.create_network(name="net")
    demo.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.44.0.0/24", name="net4")
    image, flavor = demo.image.find_image("cirros-sim"), demo.compute.find_flavor("m1.tiny")
    server = demo.compute.create_server(
        name="sdk", image_id=image.id, flavor_id=flavor.id, networks=[{"uuid": network.id}], tags=["one"]
    )
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    assert server.status == "ACTIVE" and server.addresses["net"][0]["addr"].startswith("10.44.0.")
    assert server.tags == ["one"] and server.flavor["original_name"] == "m1.tiny"
    demo.compute.set_server_metadata(server, colour="red")
    assert demo.compute.get_server(server.id).metadata == {"colour": "red"}
    demo.compute.stop_server(server)
    demo.compute.wait_for_server(server, status="SHUTOFF", wait=60, interval=0.2)
    demo.compute.start_server(server)
    demo.compute.wait_for_server(server, wait=60, interval=0.2)
    demo.compute.reboot_server(server, "HARD")
    demo.compute.wait_for_server(server, wait=60, interval=0.2)
    actions = [action.action for action in demo.compute.server_actions(server)]
    assert actions == ["reboot", "start", "stop", "create"]
    assert "KILONOVA-GUEST" in demo.compute.get_server_console_output(server)["output"]
    assert [one.id for one in demo.compute.servers(name="sdk")] == [server.id]
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, wait=60, interval=0.2)
    assert list(demo.network.ports(network_id=network.id)) == []
    demo.network.delete_network(network)


def test_others_see_nothing(clouds: tuple[Any, Any]) -> None:
    admin, demo = clouds
    image, flavor = admin.image.find_image("cirros-sim"), admin.compute.find_flavor("m1.tiny")
    server = admin.compute.create_server(name="secret", image_id=image.id, flavor_id=flavor.id, networks="none")
    admin.compute.wait_for_server(server, wait=60, interval=0.2)
    with pytest.raises(exceptions.NotFoundException):
        demo.compute.get_server(server.id)
    assert demo.compute.find_server("secret") is None
    admin.compute.delete_server(server)


def test_images_keys_flavors_quotas_services(clouds: tuple[Any, Any]) -> None:
    admin, demo = clouds
    image = demo.image.create_image(name="tiny", data=b"x" * 100, disk_format="raw", container_format="bare", wait=True)
    assert demo.image.get_image(image.id).status == "active"
    assert b"".join(demo.image.download_image(image, stream=True).iter_content(64)) == b"x" * 100
    demo.image.delete_image(image)
    key = demo.compute.create_keypair(name="sdk-key", public_key=_public_key())
    assert demo.compute.get_keypair(key.name).fingerprint
    demo.compute.delete_keypair(key)
    assert {flavor.name for flavor in demo.compute.flavors()} >= {"m1.tiny", "m1.small"}
    project = admin.identity.find_project("demo")
    assert admin.compute.get_quota_set(project.id).cores == 20
    assert {service.host for service in admin.compute.services(binary="nova-compute")} == {"host1", "host2"}
    assert {host.name for host in admin.compute.hypervisors()} == {"host1", "host2"}


def _public_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.generate().public_key()
    encoded = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return encoded.decode()


def test_a_server_that_moves(clouds: tuple[Any, Any]) -> None:
    admin, demo = clouds
    image, flavor = demo.image.find_image("cirros-sim"), demo.compute.find_flavor("m1.tiny")
    server = demo.compute.create_server(name="moves", image_id=image.id, flavor_id=flavor.id, networks="none")
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    source = admin.compute.get_server(server.id).compute_host
    with pytest.raises(exceptions.ForbiddenException):
        demo.compute.migrate_server(server)
    admin.compute.migrate_server(server, host={"host1": "host2", "host2": "host1"}[source])
    demo.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=60, interval=0.2)
    demo.compute.confirm_server_resize(server)
    demo.compute.wait_for_server(server, wait=60, interval=0.2)
    with pytest.raises(exceptions.ConflictException):
        demo.compute.confirm_server_resize(server)
    admin.compute.migrate_server(server)
    demo.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=60, interval=0.2)
    demo.compute.revert_server_resize(server)
    demo.compute.wait_for_server(server, wait=60, interval=0.2)
    assert admin.compute.get_server(server.id).compute_host != source
    moves = list(admin.compute.migrations(instance_uuid=server.id))
    assert [(move.status, move.migration_type, move.project_id) for move in moves] == [
        ("reverted", "migration", server.project_id),
        ("confirmed", "migration", server.project_id),
    ]
    assert list(admin.compute.server_migrations(server)) == []
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, wait=60, interval=0.2)


def test_a_server_that_is_resized(clouds: tuple[Any, Any]) -> None:
    admin, demo = clouds
    image = demo.image.find_image("cirros-sim")
    tiny, small = demo.compute.find_flavor("m1.tiny"), demo.compute.find_flavor("m1.small")
    server = demo.compute.create_server(name="grows", image_id=image.id, flavor_id=tiny.id, networks="none")
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    with pytest.raises(exceptions.BadRequestException):
        demo.compute.resize_server(server, tiny)
    demo.compute.resize_server(server, small)
    demo.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=60, interval=0.2)
    demo.compute.revert_server_resize(server)
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    assert server.flavor.original_name == "m1.tiny"
    demo.compute.resize_server(server, small)
    demo.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=60, interval=0.2)
    demo.compute.confirm_server_resize(server)
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    assert server.flavor.original_name == "m1.small"
    with pytest.raises(exceptions.ConflictException):
        demo.compute.revert_server_resize(server)
    moves = list(admin.compute.migrations(instance_uuid=server.id))
    assert [(move.status, move.migration_type) for move in moves] == [("confirmed", "resize"), ("reverted", "resize")]
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, wait=60, interval=0.2)


def test_a_server_is_restored_from_its_image(clouds: tuple[Any, Any], cloud: Cloud) -> None:
    _, demo = clouds
    image, flavor = demo.image.find_image("cirros-sim"), demo.compute.find_flavor("m1.tiny")
    server = demo.compute.create_server(name="kept", image_id=image.id, flavor_id=flavor.id, networks="none")
    server = demo.compute.wait_for_server(server, wait=60, interval=0.2)
    cloud.http.post(f"/simulated/servers/{server.id}/write", {"disk": "root", "text": "before"})
    made = demo.compute.create_server_image(server, "kept", metadata={"why": "tests"}, wait=True, timeout=60)
    assert (made.status, made.name, made.properties["why"]) == ("active", "kept", "tests")
    cloud.http.post(f"/simulated/servers/{server.id}/write", {"disk": "root", "text": "after"})
    demo.compute.rebuild_server(server, made.id)
    demo.compute.wait_for_server(server, wait=60, interval=0.2)
    console = demo.compute.get_server_console_output(server)["output"]
    assert f"root=image:{image.id}+before volumes=" in console and "after" not in console
    demo.compute.delete_server(server)
    demo.compute.wait_for_delete(server, wait=60, interval=0.2)
    demo.image.delete_image(made)
