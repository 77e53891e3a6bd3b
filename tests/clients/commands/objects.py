"""Real objects of all services for the arguments of command lines."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from tests.clients.commands.networks import Networks
from tests.clients.commands.shell import Shell

UNLIMITED = -1


class Objects(Networks):
    """All kinds."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        super().__init__(shell, folder)
        self._lift_quotas()

    def _lift_quotas(self) -> None:
        everything = ("cores", "instances", "ram", "key_pairs", "server_groups")
        self._connection.set_compute_quotas(self.project_id, **dict.fromkeys(everything, UNLIMITED))
        self._connection.set_volume_quotas(self.project_id, volumes=UNLIMITED, gigabytes=UNLIMITED, snapshots=UNLIMITED)
        networks = ("network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule")
        self._connection.set_network_quotas(self.project_id, **dict.fromkeys(networks, UNLIMITED))

    # Compute

    def _server(self) -> str:
        made = self._connection.compute.create_server(
            name=self.name(),
            image_id=self.of("image"),
            flavor_id=self.of("flavor"),
            networks=[{"uuid": self.of("network")}],
        )
        return str(self._connection.compute.wait_for_server(made, interval=0.05, wait=30).id)

    def _server_with_volume(self) -> str:
        server = self._server()
        self._made[server] = volume = self._volume()
        self._connection.compute.create_volume_attachment(server, volume_id=volume)
        return server

    def _reachable_server(self) -> str:
        """On a network behind a router with a gateway."""
        port = self._reachable_port()
        made = self._connection.compute.create_server(
            name=self.name(), image_id=self.of("image"), flavor_id=self.of("flavor"), networks=[{"port": port}]
        )
        self._made["server"] = port
        return str(self._connection.compute.wait_for_server(made, interval=0.05, wait=30).id)

    def _floating_address(self) -> str:
        return str(self._connection.network.get_ip(self._floating_ip()).floating_ip_address)

    def _taken_address(self) -> str:
        """Of the reachable server that was made last."""
        floating = self._connection.network.update_ip(self._floating_ip(), port_id=self._made["server"])
        return str(floating.floating_ip_address)

    def _volume_of_server(self) -> str:
        """The volume of the server that was made last."""
        return str(next(reversed(self._made.values())))

    def _dressed_server(self) -> str:
        """With a tag and metadata, to be taken off again: always the same one."""
        server = self.of("server")
        self._connection.compute.set_server_metadata(server, a="b")
        self._connection.compute.add_tag_to_server(server, "red")
        return server

    def _server_on_host1(self) -> str:
        made = self._connection.compute.create_server(
            name=self.name(), image_id=self.of("image"), flavor_id=self.of("flavor"), networks="none", host="host1"
        )
        return str(self._connection.compute.wait_for_server(made, interval=0.05, wait=30).id)

    def _moved_server(self) -> str:
        server = self._server()
        self._connection.compute.migrate_server(server)
        self._connection.compute.wait_for_server(
            self._connection.compute.get_server(server), status="VERIFY_RESIZE", interval=0.05, wait=30
        )
        return server

    def _stopped_server(self) -> str:
        server = self._server()
        self._connection.compute.stop_server(server)
        self._connection.compute.wait_for_server(
            self._connection.compute.get_server(server), status="SHUTOFF", interval=0.05, wait=30
        )
        return server

    def _idle_service(self) -> str:
        return str(next(self._connection.compute.services(host="host3", binary="nova-compute")).id)

    def _soft_deleted_server(self) -> str:
        """The cloud has [DEFAULT] reclaim_instance_interval."""
        server = self._server()
        self._connection.compute.delete_server(server)
        self._connection.compute.wait_for_server(
            self._connection.compute.get_server(server), status="SOFT_DELETED", interval=0.05, wait=30
        )
        return server

    def _hypervisor(self) -> str:
        return str(next(self._connection.compute.hypervisors()).id)

    def _request(self) -> str:
        """The request id of the shared server's create."""
        return str(next(self._connection.compute.server_actions(self.of("server"))).request_id)

    def _flavor(self) -> str:
        return str(self._connection.compute.create_flavor(name=self.name(), ram=64, vcpus=1, disk=1).id)

    def _roomy_flavor(self) -> str:
        made = self._connection.compute.create_flavor(name=self.name(), ram=64, vcpus=1, disk=1, ephemeral=1, swap=64)
        return str(made.id)

    def _private_flavor(self) -> str:
        flavor = self._connection.compute.create_flavor(name=self.name(), ram=64, vcpus=1, disk=1, is_public=False)
        self._connection.compute.flavor_add_tenant_access(flavor.id, self.of("project"))
        return str(flavor.id)

    def _keypair(self) -> str:
        key = Path(self._public_key()).read_text()
        return str(self._connection.compute.create_keypair(name=self.name(), public_key=key).name)

    def _aggregate(self) -> str:
        return str(self._connection.compute.create_aggregate(name=self.name()).id)

    def _aggregate_of_host(self) -> str:
        aggregate = self._aggregate()
        self._connection.compute.add_host_to_aggregate(aggregate, "host1")
        return aggregate

    def _server_group(self) -> str:
        return str(self._connection.compute.create_server_group(name=self.name(), policy="affinity").id)

    # Identity

    def _project(self) -> str:
        return str(self._connection.identity.create_project(name=self.name(), domain_id="default").id)

    def _user(self) -> str:
        return str(self._connection.identity.create_user(name=self.name(), domain_id="default").id)

    def _group(self) -> str:
        return str(self._connection.identity.create_group(name=self.name(), domain_id="default").id)

    def _group_with_user(self) -> str:
        group = self._group()
        self._connection.identity.add_user_to_group(self.of("user"), group)
        return group

    def _role(self) -> str:
        return str(self._connection.identity.create_role(name=self.name()).id)

    def _implying_role(self) -> str:
        role = self._role()
        self._connection.identity.put(f"/roles/{role}/implies/{self.of('role')}")
        return role

    def _role_of_user(self) -> str:
        role = self._role()
        self._connection.identity.assign_project_role_to_user(self.of("project"), self.of("user"), role)
        return role

    def _domain(self) -> str:
        return str(self._connection.identity.create_domain(name=self.name()).id)

    def _disabled_domain(self) -> str:
        return str(self._connection.identity.create_domain(name=self.name(), is_enabled=False).id)

    def _service(self) -> str:
        return str(self._connection.identity.create_service(name=self.name(), type=self.name()).id)

    def _endpoint(self) -> str:
        made = self._connection.identity.create_endpoint(
            service_id=self.of("service"), interface="public", url="http://127.0.0.1:1"
        )
        return str(made.id)

    def _region(self) -> str:
        return str(self._connection.identity.create_region(id=self.name()).id)

    def _credential(self) -> str:
        made = self._connection.identity.create_credential(user_id=self.of("user"), type="cert", blob="{}")
        return str(made.id)

    def _policy(self) -> str:
        return str(self._connection.identity.create_policy(type="application/json", blob="{}").id)

    def _token(self) -> str:
        """A token that nobody else uses."""
        identity = {"methods": ["token"], "token": {"id": self._connection.auth_token}}
        answer = self._connection.identity.post("/auth/tokens", json={"auth": {"identity": identity}})
        return str(answer.headers["X-Subject-Token"])

    # Image

    def _image(self) -> str:
        made = self._connection.image.create_image(
            name=self.name(),
            data=b"kilonova" * 64,
            disk_format="raw",
            container_format="bare",
            os_distro="debian",
        )
        return str(made.id)

    def _queued_image(self) -> str:
        answer = self._connection.image.post("/images", json={"name": self.name()})
        return str(answer.json()["id"])

    def _image_of_member(self) -> str:
        image = self._connection.image.create_image(
            name=self.name(), data=b"x", disk_format="raw", container_format="bare", visibility="shared"
        )
        self._connection.image.add_member(image.id, member_id=self.of("project"))
        return str(image.id)

    def _image_of_own_member(self) -> str:
        """Shared with the caller's own project, so that it can accept or reject it."""
        image = self._image_of_member()
        self._connection.image.add_member(image, member_id=self.project_id)
        return image

    def _tagged_image(self) -> str:
        image = self._image()
        self._connection.image.add_tag(image, "red")
        self._connection.image.update_image(image, a="b")
        return image

    # Volume

    def _volume(self) -> str:
        made = self._connection.block_storage.create_volume(name=self.name(), size=1, metadata={"a": "b"})
        return str(self._connection.block_storage.wait_for_status(made, interval=0.05, wait=30).id)

    def _snapshot(self) -> str:
        made = self._connection.block_storage.create_snapshot(
            name=self.name(), volume_id=self._volume(), metadata={"a": "b"}
        )
        return str(self._connection.block_storage.wait_for_status(made, interval=0.05, wait=30).id)

    def _bootable_volume(self) -> str:
        volume = self._volume()
        self._connection.block_storage.set_volume_bootable_status(volume, True)
        return volume

    def _bootable_snapshot(self) -> str:
        made = self._connection.block_storage.create_snapshot(name=self.name(), volume_id=self._bootable_volume())
        return str(self._connection.block_storage.wait_for_status(made, interval=0.05, wait=30).id)

    def _connected_attachment(self) -> str:
        attachment = self._attachment()
        self._connection.block_storage.update_attachment(attachment, connector={"host": "host1"})
        return attachment

    def _volume_type(self) -> str:
        return str(self._connection.block_storage.create_type(name=self.name(), extra_specs={"a": "b"}).id)

    def _private_volume_type(self) -> str:
        made = self._connection.block_storage.create_type(name=self.name(), is_public=False, extra_specs={"a": "b"})
        self._connection.block_storage.add_type_access(made, self.of("project"))
        return str(made.id)

    def _volume_host(self) -> str:
        return str(next(self._connection.block_storage.services(binary="cinder-volume")).host)

    def _attachment(self) -> str:
        made = self._connection.block_storage.create_attachment(self._volume(), instance=self.new("server"))
        return str(made.id)

    # Placement

    def _provider(self) -> str:
        return str(self._connection.placement.create_resource_provider(name=self.name()).id)

    def _stocked_provider(self) -> str:
        provider = self._provider()
        self._connection.placement.put(
            f"/resource_providers/{provider}/inventories",
            json={"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}},
        )
        return provider

    def _uuid(self) -> str:
        return str(uuid.uuid4())

    def _resource_class(self) -> str:
        return str(self._connection.placement.create_resource_class(name=f"CUSTOM_{self.name()}").name)

    def _trait(self) -> str:
        return str(self._connection.placement.create_trait(name=f"CUSTOM_{self.name()}").name)

    # Files

    def _file(self) -> str:
        path = self._folder / self.name()
        path.write_text("{}")
        return str(path)

    def _public_key(self) -> str:
        path = self._folder / self.name()
        blob = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()
        path.write_text(f"ssh-ed25519 {blob} test")
        return str(path)

    def _new_file(self) -> str:
        return str(self._folder / self.name())
