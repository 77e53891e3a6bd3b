"""A guest that one can log in to: key, user data and files reach it, and what it wrote is kept or lost as the API says.

One server and three boots: created, stopped and started, rebuilt. QEMU's own network, so that no root is needed.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guests.daemon import Libvirt
from tests.guests.qemu import BOOT_SECONDS, SshFailed, ssh
from tests.guests.test_cloud import act, console, delete, serve, wait_for
from tests.guests.test_volumes_cloud import AT_342, attach, detach, end_exports, new_volume
from tests.support.program import Http, until

SCRIPT = "#!/bin/sh\necho {0} >/root/user-data-ran\n"
VERSION = {"OpenStack-API-Version": "compute 2.57"}  # the last one before 2.90 that rebuilds with key and user data


@pytest.fixture(scope="module")
def data(libvirt: Libvirt) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kilonova-ssh-") as folder:
        Path(folder).chmod(0o711)  # on the way to the disks
        yield Path(folder) / "data"
        end_exports(Path(folder) / "data", "exports", "relays")


def test_a_key_opens_a_new_and_a_rebuilt_guest(libvirt: Libvirt, data: Path, guest_image: Path, tmp_path: Path) -> None:
    keys = [new_key(tmp_path, name) for name in ("first", "second")]
    with serve(libvirt, data, {"libvirt.default_image": guest_image}) as cloud:
        http = cloud.http
        for key in keys:
            given = {"keypair": {"name": key.name, "public_key": key.with_suffix(".pub").read_text()}}
            assert http.ask("POST", "/compute/v2.1/os-keypairs", given).status in (200, 201)
        server = create(http)
        booted(http, server, 1)
        (mac,) = [one["mac_address"] for one in ports(http, server)]
        port = forwarded(data)
        assert "its key pair opens it: ssh -p 22022 root@127.0.0.1" in cloud.log()
        assert f"server={server} command='ssh -p {port} root@127.0.0.1'" in cloud.log()
        asked = "cat /root/user-data-ran /etc/motd; hostname; cat /sys/class/net/eth0/address"
        assert ssh(port, asked, key=keys[0]) == f"one\nwelcome\nweb\n{mac}"
        assert ssh(port, "grep -c ^/dev /proc/swaps; df /mnt | grep -c /mnt", key=keys[0]) == "1\n1"
        ssh(port, "echo mine >/root/file; sync", key=keys[0])
        volume = volume_of_a_running_guest(http, data, server, port, keys[0])

        act(http, server, {"os-stop": None}, "SHUTOFF")
        act(http, server, {"os-start": None}, "ACTIVE")
        booted(http, server, 2)
        assert forwarded(data) == port
        assert ssh(port, "cat /root/file", key=keys[0]) == "mine"

        image = http.ask("GET", f"/compute/v2.1/servers/{server}").json["server"]["image"]["id"]
        rebuild = {"imageRef": image, "key_name": "second", "user_data": encoded(SCRIPT.format("two"))}
        done = http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"rebuild": rebuild}, VERSION)
        assert done.status == 202, done.body
        wait_for(http, server, "ACTIVE")
        booted(http, server, 1)
        assert ssh(port, "cat /root/user-data-ran; ls /root/file 2>&1 | wc -l", key=keys[1]).startswith("two")
        with pytest.raises(SshFailed, match="ended with 1"):
            ssh(port, "test -e /root/file", key=keys[1])
        with pytest.raises(SshFailed, match="Permission denied"):
            ssh(port, "true", key=keys[0])
        assert [one["mac_address"] for one in ports(http, server)] == [mac]
        disk = disk_of(volume, port, keys[1])
        assert ssh(port, f"head -c 5 /dev/{disk}; cat /sys/block/{disk}/size", key=keys[1]) == f"kept\n{4 * 1024**2}"
        delete(http, libvirt, server)
        until(lambda: json.loads((data / "network/forwards.json").read_text()) == {}, 10, "its port is free")


def volume_of_a_running_guest(http: Http, data: Path, server: str, port: int, key: Path) -> str:
    """Plugged, written to while its server is killed, grown, unplugged, plugged again."""
    volume = new_volume(http)
    attach(http, server, volume)
    disk = disk_of(volume, port, key)
    end_exports(data, "exports")
    assert ssh(port, f"echo kept >/dev/{disk} && sync && head -c 5 /dev/{disk}", key=key) == "kept"
    grown = {"os-extend": {"new_size": 2}}
    assert http.ask("POST", f"/volume/v3/volumes/{volume}/action", grown, AT_342).status == 202
    sectors = f"{4 * 1024**2}"
    until(lambda: ssh(port, f"cat /sys/block/{disk}/size", key=key) == sectors, 60, "the guest sees the new size")
    detach(http, server, volume)
    assert ssh(port, "ls /sys/block | grep -c vd", key=key) == "3"
    attach(http, server, volume)
    return volume


def disk_of(volume: str, port: int, key: Path) -> str:
    """Its name in the guest, once it is there."""

    def look() -> str:
        return ssh(port, f"grep -l {volume[:20]} /sys/block/vd*/serial || true", key=key)

    found: str = until(look, 60, lambda: ssh(port, "grep . /sys/block/vd*/serial; dmesg | tail", key=key))
    return found.split("/")[3]


def new_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder / name


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def create(http: Http) -> str:
    sizes = {"vcpus": 1, "ram": 128, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 1, "swap": 16}
    http.ask("POST", "/compute/v2.1/flavors", {"flavor": {"name": "small", "id": "small", **sizes}})
    (image,) = http.ask("GET", "/image/v2/images?name=kilonova-guest").json["images"]
    (network,) = http.ask("GET", "/network/v2.0/networks?name=shared").json["networks"]
    body = {
        "name": "web",
        "imageRef": image["id"],
        "flavorRef": "small",
        "networks": [{"uuid": network["id"]}],
        "key_name": "first",
        "user_data": encoded(SCRIPT.format("one")),
        "personality": [{"path": "/etc/motd", "contents": encoded("welcome\n")}],
    }
    made = http.ask("POST", "/compute/v2.1/servers", {"server": body})
    assert made.status == 202, made.body
    server = str(made.json["server"]["id"])
    wait_for(http, server, "ACTIVE")
    return server


def booted(http: Http, server: str, times: int) -> None:
    """The guest's last line, once ssh answers."""
    line = f"KILONOVA-GUEST name=web boot={times} "
    until(lambda: line in console(http, server), BOOT_SECONDS, lambda: console(http, server))


def ports(http: Http, server: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.ask("GET", f"/network/v2.0/ports?device_id={server}").json["ports"]
    return found


def forwarded(data: Path) -> int:
    (forward,) = json.loads((data / "network/forwards.json").read_text()).values()
    return int(forward[2])
