"""Servers of the three hosts: asked for at the API, logged in to from the world outside, through a floating IP."""

from __future__ import annotations

import base64
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.guests.hosts import Hosts
from tests.guests.qemu import BOOT_SECONDS, SshFailed, ssh
from tests.guests.test_cloud import console, show
from tests.guests.tiny_guest import image as tiny_image
from tests.support.program import Answer, until

COMPUTE, NETWORK, VOLUMES = "/compute/v2.1", "/network/v2.0", "/volume/v3/volumes"
NEWEST_WITH_FILES = "compute 2.56"
SETTLED_SECONDS = 120.0
SMALL = {"vcpus": 1, "ram": 128, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 1, "swap": 16}
LARGE = {"vcpus": 1, "ram": 160, "disk": 2, "OS-FLV-EXT-DATA:ephemeral": 1, "swap": 32}
TINY = {"vcpus": 1, "ram": 32, "disk": 1}
GIVEN_VOLUME = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}
# The guest may not have seen it yet. It is empty at first, and has a file system afterwards.
WRITE_VOLUME = """
set -e
for _ in $(seq 60); do file=$(grep -l ^{serial} /sys/block/*/serial) && break; sleep 1; done
device=/dev/$(basename $(dirname $file))
mkdir -p /tmp/volume
if ! mount -t ext4 $device /tmp/volume 2>/dev/null; then
  /sbin/mke2fs -q -t ext4 -i 65536 $device
  mount -t ext4 $device /tmp/volume
fi
echo {text} >/tmp/volume/marker
umount /tmp/volume
"""
READ_VOLUME = "/usr/lib/kilonova/report | sed 's/.* volumes=//'"
OPEN = ({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}, {"protocol": "icmp"})


class Cloud:
    """What an operator prepares once: images, flavors, keys, rules and a router to the world outside."""

    def __init__(self, lab: Hosts, guest_image: Path) -> None:
        self.lab, self.http = lab, lab.http
        self.keys = {name: self._key(name) for name in ("first", "second")}
        for name, sizes in (("small", SMALL), ("large", LARGE), ("tiny", TINY)):
            self.post(f"{COMPUTE}/flavors", {"flavor": {"name": name, "id": name, **sizes}})
        self.image = self._upload("guest", "qcow2", guest_image.read_bytes())
        never_listens = {"os_shutdown_timeout": "0"}
        self.tiny = self._upload("tiny", "raw", tiny_image("image:tiny"), never_listens)
        self.network = self.find("networks", name="shared")
        self.public = self.find("networks", name="public")
        self.group = self._group()
        self._router()

    def post(self, path: str, body: Any, version: str = "compute 2.1", method: str = "POST") -> Answer:
        answer = self.http.ask(method, path, body, {"OpenStack-API-Version": version})
        assert answer.status in (200, 201, 202, 204), (path, answer.status, answer.body)
        return answer

    def find(self, noun: str, **filters: str) -> dict[str, Any]:
        query = "&".join(f"{name}={value}" for name, value in filters.items())
        (found,) = self.http.ask("GET", f"{NETWORK}/{noun}?{query}").json[noun]
        return dict(found)

    def _key(self, name: str) -> Path:
        path = self.lab.directory / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        public = path.with_suffix(".pub").read_text()
        self.post(f"{COMPUTE}/os-keypairs", {"keypair": {"name": name, "public_key": public}})
        return path

    def _upload(self, name: str, disk_format: str, content: bytes, properties: dict[str, str] | None = None) -> str:
        described = {"name": name, "disk_format": disk_format, "container_format": "bare", **(properties or {})}
        made = str(self.http.ask("POST", "/image/v2/images", described).json["id"])
        octets = {"Content-Type": "application/octet-stream"}
        assert self.http.ask("PUT", f"/image/v2/images/{made}/file", content, octets).status == 204
        return made

    def _group(self) -> str:
        made = self.post(f"{NETWORK}/security-groups", {"security_group": {"name": "lab"}}).json["security_group"]
        for rule in OPEN:
            self.open(str(made["id"]), **rule)
        return str(made["id"])

    def open(self, group: str, **rule: Any) -> str:
        asked = {"security_group_id": group, "direction": "ingress", "ethertype": "IPv4", **rule}
        made = self.post(f"{NETWORK}/security-group-rules", {"security_group_rule": asked})
        return str(made.json["security_group_rule"]["id"])

    def close(self, rule: str) -> None:
        self.post(f"{NETWORK}/security-group-rules/{rule}", None, method="DELETE")

    def _router(self) -> None:
        asked = {"name": "out", "external_gateway_info": {"network_id": self.public["id"]}}
        made = self.post(f"{NETWORK}/routers", {"router": asked}).json["router"]["id"]
        subnet = {"subnet_id": self.network["subnets"][0]}
        self.post(f"{NETWORK}/routers/{made}/add_router_interface", subnet, method="PUT")

    def create(self, name: str, host: str, **fields: Any) -> LabServer:
        """On that host. Returns before it is there."""
        body = {
            "name": name,
            "imageRef": self.image,
            "flavorRef": "small",
            "networks": [{"uuid": self.network["id"]}],
            "security_groups": [{"name": self.group}],
            "key_name": "first",
            "availability_zone": f":{host}",
            **fields,
        }
        wanted = {field: value for field, value in body.items() if value is not None}
        made = self.post(f"{COMPUTE}/servers", {"server": wanted}, NEWEST_WITH_FILES)
        return LabServer(self, name, str(made.json["server"]["id"]))

    def create_tiny(self, name: str, host: str, **fields: Any) -> LabServer:
        """It has no system: it counts its boots on its disk, and says so."""
        given = {"imageRef": self.tiny, "flavorRef": "tiny", "key_name": None, "security_groups": None}
        return self.create(name, host, **{**given, "networks": "none", **fields})

    def create_tiny_on_volume(self, name: str, host: str) -> LabServer:
        """Its only disk is a volume."""
        root = {"source_type": "image", "uuid": self.tiny, "destination_type": "volume", "volume_size": 1}
        disks = [{**root, "boot_index": 0, "delete_on_termination": True}]
        return self.create_tiny(name, host, imageRef=None, block_device_mapping_v2=disks)


class LabServer:
    def __init__(self, cloud: Cloud, name: str, server: str) -> None:
        self.cloud, self.name, self.id = cloud, name, server
        self.key = cloud.keys["first"]
        self.floating = ""
        self.asked_at = time.monotonic()

    def show(self) -> Any:
        return show(self.cloud.http, self.id)

    @property
    def host(self) -> str:
        return str(self.show()["OS-EXT-SRV-ATTR:host"])

    @property
    def port(self) -> dict[str, Any]:
        return self.cloud.find("ports", device_id=self.id)

    def identity(self) -> tuple[Any, ...]:
        """What a move never changes."""
        port = self.port
        return self.id, port["id"], port["mac_address"], [one["ip_address"] for one in port["fixed_ips"]]

    def wait_for(self, status: str) -> LabServer:
        def look() -> bool:
            self.cloud.lab.check()
            shown = self.show()
            assert status == "ERROR" or shown["status"] != "ERROR", shown.get("fault")
            return bool(shown["status"] == status and shown["OS-EXT-STS:task_state"] is None)

        until(look, SETTLED_SECONDS, lambda: f"{self.show()}\n{self._operations()}")
        return self

    def _operations(self) -> Any:
        return self.cloud.http.get(f"/operations?server={self.id}")

    def act(self, action: Any, status: str, version: str = "compute 2.1") -> Answer:
        done = self.cloud.post(f"{COMPUTE}/servers/{self.id}/action", action, version)
        self.wait_for(status)
        return done

    def console(self) -> str:
        return console(self.cloud.http, self.id)

    def booted(self, times: int) -> None:
        """As it says itself, after ssh answers."""
        self.says(f"KILONOVA-GUEST name={self.name} boot={times} ")

    def says(self, text: str = "KILONOVA-GUEST", seconds: float = BOOT_SECONDS) -> None:
        """Wait for it on the console. Fails at once where its host or a controller is gone, or the server failed."""

        def look() -> bool:
            self.cloud.lab.check()
            if text in self.console():
                return True
            shown = self.show()
            assert shown["status"] != "ERROR", (self.name, shown.get("fault"))
            host = str(shown["OS-EXT-SRV-ATTR:host"])
            assert host in self.cloud.lab.roles, f"{self.name}: its host {host} has no agent"
            return False

        until(look, seconds, lambda: f"{self.name} says {text!r}: {self.console()}")

    def boots(self) -> int:
        """As its disk has counted them."""
        return int(self.ssh("cat /var/lib/kilonova/boots"))

    def float(self) -> str:
        """Give it a floating IP."""
        asked = {"floating_network_id": self.cloud.public["id"], "port_id": self.port["id"]}
        made = self.cloud.post(f"{NETWORK}/floatingips", {"floatingip": asked})
        self.floating = str(made.json["floatingip"]["floating_ip_address"])
        return self.floating

    def ssh(self, command: str, *, key: Path | None = None, password: str = "") -> str:
        """From the world outside, through the network node."""
        world = self.cloud.lab.world.enter
        key = None if password else key or self.key
        return ssh(22, command, key=key, password=password, address=self.floating, within=world)

    @property
    def volume(self) -> str:
        """Its only one, or ""."""
        attached = self.show()["os-extended-volumes:volumes_attached"]
        assert len(attached) < 2, attached
        return str(attached[0]["id"]) if attached else ""

    def ensure_volume(self) -> str:
        """Attached while it runs, unless it has one."""
        if not self.volume:
            made = self.cloud.post(VOLUMES, {"volume": {"size": 1}}).json["volume"]["id"]
            self._await_volume(made, "available")
            asked = {"volumeAttachment": {"volumeId": made}}
            self.cloud.post(f"{COMPUTE}/servers/{self.id}/os-volume_attachments", asked)
            self._await_volume(made, "in-use")
        return self.volume

    def _await_volume(self, volume: str, status: str) -> None:
        shown = f"{VOLUMES}/{volume}"
        until(lambda: self.cloud.http.ask("GET", shown).json["volume"]["status"] == status, SETTLED_SECONDS, shown)

    def write_volume(self, text: str) -> None:
        self.ssh(WRITE_VOLUME.format(serial=self.volume[:20], text=text))

    def read_volume(self) -> str:
        return self.ssh(READ_VOLUME)

    def refuses(self, key: Path) -> bool:
        try:
            self.ssh("true", key=key)
        except SshFailed as why:
            return "Permission denied" in str(why)
        return False

    def delete(self) -> None:
        assert self.cloud.http.ask("DELETE", f"{COMPUTE}/servers/{self.id}").status == 204
        until(
            lambda: self.cloud.http.ask("GET", f"{COMPUTE}/servers/{self.id}").status == 404, SETTLED_SECONDS, self.id
        )


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
