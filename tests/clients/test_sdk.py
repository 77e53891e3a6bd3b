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
