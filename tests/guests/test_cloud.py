"""A whole cloud with real guests: `kilonova serve --driver libvirt`, spoken to over HTTP, and killed."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guests.daemon import Libvirt
from tests.guests.processes import process_of
from tests.guests.tiny_guest import image
from tests.support.program import Cloud, Http, until

NOTICED_SECONDS = 2.0


@pytest.fixture(scope="module")
def data(libvirt: Libvirt) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kilonova-cloud-") as folder:
        Path(folder).chmod(0o711)  # on the way to the disks
        yield Path(folder) / "data"


def serve(libvirt: Libvirt, data: Path, more: dict[str, Any] | None = None) -> Cloud:
    options = {"libvirt.connection_uri": libvirt.uri, "libvirt.virt_type": "qemu", "DEFAULT.shutdown_timeout": 0.3}
    options |= {"DEFAULT.host": "node1", "DEFAULT.report_interval": 5, "DEFAULT.allow_resize_to_same_host": "true"}
    options |= more or {}
    options |= {"network.driver": "user"}  # this libvirtd is not root's
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    return Cloud(data, "--driver", "libvirt", *words)


def test_guests_of_a_cloud(libvirt: Libvirt, data: Path) -> None:
    with serve(libvirt, data) as cloud:
        assert "accelerator: host=node1 type=TCG" in cloud.log()
        http = cloud.http
        server = create(http, upload(http))
        until(lambda: console(http, server) == boots(1), 30, lambda: console(http, server))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.rglob("instances/node1/*/*/*")}
        assert modes and set(modes.values()) == {0o600}, modes

        os.kill(process_of(server), signal.SIGKILL)  # it dies: the API says so
        began = time.monotonic()
        wait_for(http, server, "SHUTOFF")
        print(f"noticed after {time.monotonic() - began:.2f} s")
        assert time.monotonic() - began < NOTICED_SECONDS
        act(http, server, {"os-start": None}, "ACTIVE")

        libvirt.virsh("destroy", domain_of(libvirt, server))  # stopped from outside: the same
        wait_for(http, server, "SHUTOFF")
        act(http, server, {"os-start": None}, "ACTIVE")

        act(http, server, {"os-stop": None}, "SHUTOFF")
        libvirt.virsh("start", domain_of(libvirt, server))  # started against its owner's word: it is stopped again
        until(lambda: not libvirt.virsh("list", "--name"), 20, "the guest is stopped again")
        wait_for(http, server, "SHUTOFF")
        before = console(http, server)
        act(http, server, {"os-start": None}, "ACTIVE")
        until(lambda: console(http, server).endswith("tiny\n") and console(http, server) != before, 30, "it boots")
        written = console(http, server)

        cloud.kill9()  # API, conductor and agent at once
    libvirt.kill9()
    pid = process_of(server)
    libvirt.start()
    with serve(libvirt, data) as cloud:
        http = cloud.http
        wait_for(http, server, "ACTIVE")
        assert (process_of(server), console(http, server)) == (pid, written), "it was started again"
        libvirt.kill9()  # libvirtd alone: the agent finds it again
        libvirt.start()
        act(http, server, {"os-stop": None}, "SHUTOFF")
        delete(http, libvirt, server)
        until(lambda: not list(data.glob("instances/node1/*")), 30, "its disk is gone")


def test_a_guest_is_snapshotted_rebuilt_and_resized(libvirt: Libvirt, data: Path) -> None:
    with serve(libvirt, data) as cloud:
        http = cloud.http
        server = create(http, upload(http))
        until(lambda: console(http, server) == boots(1), 30, lambda: console(http, server))
        made = http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"createImage": {"name": "of it"}})
        image_id = made.headers["Location"].rpartition("/")[2]
        shown = f"/image/v2/images/{image_id}"
        until(lambda: http.ask("GET", shown).json["status"] == "active", 60, f"{shown} is active")
        wait_for(http, server, "ACTIVE")

        act(http, server, {"rebuild": {"imageRef": image_id}}, "ACTIVE")
        counted = "KILONOVA-GUEST boot=2 root=image:tiny\n"
        until(lambda: console(http, server) == counted, 30, lambda: console(http, server))

        sizes = {"vcpus": 1, "ram": 96, "disk": 2, "OS-FLV-EXT-DATA:ephemeral": 1, "swap": 8}
        flavor = {"flavor": {"name": "larger", "id": "larger", **sizes}}
        http.ask("POST", "/compute/v2.1/flavors", flavor)
        act(http, server, {"resize": {"flavorRef": "larger"}}, "VERIFY_RESIZE")
        counted = "KILONOVA-GUEST boot=3 root=image:tiny\n"
        until(lambda: console(http, server) == counted, 30, lambda: console(http, server))
        disks = {path.name for path in max(data.glob(f"instances/node1/{server}/*"), key=copy_number).iterdir()}
        assert {"disk.qcow2", "ephemeral0.qcow2", "swap.raw"} <= disks
        done = http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"confirmResize": None})
        assert done.status == 204, done.body
        wait_for(http, server, "ACTIVE")
        until(lambda: len(list(data.glob(f"instances/node1/{server}/*"))) == 1, 30, "the old copy is gone")
        delete(http, libvirt, server)


def copy_number(path: Path) -> int:
    return int(path.name)


def upload(http: Http) -> str:
    given = {"name": "tiny", "disk_format": "raw", "container_format": "bare"}
    made = http.ask("POST", "/image/v2/images", given).json["id"]
    content = {"Content-Type": "application/octet-stream"}
    done = http.ask("PUT", f"/image/v2/images/{made}/file", image("image:tiny"), content)
    assert done.status == 204, done.body
    return str(made)


def create(http: Http, image_id: str) -> str:
    flavor = {"flavor": {"name": "tiny", "vcpus": 1, "ram": 64, "disk": 1, "id": "tiny"}}
    http.ask("POST", "/compute/v2.1/flavors", flavor)
    body = {"server": {"name": "web", "imageRef": image_id, "flavorRef": "tiny", "networks": "none"}}
    made = http.ask("POST", "/compute/v2.1/servers", body, {"OpenStack-API-Version": "compute 2.37"})
    assert made.status == 202, made.body
    server = str(made.json["server"]["id"])
    wait_for(http, server, "ACTIVE")
    return server


def show(http: Http, server: str) -> Any:
    return http.ask("GET", f"/compute/v2.1/servers/{server}").json["server"]


def wait_for(http: Http, server: str, status: str) -> None:
    def look() -> bool:
        shown = show(http, server)
        assert shown["status"] != "ERROR", shown.get("fault")
        return bool(shown["status"] == status and shown["OS-EXT-STS:task_state"] is None)

    until(look, 40, lambda: str(show(http, server)))


def delete(http: Http, libvirt: Libvirt, server: str) -> None:
    """Returns when its guest is gone. Other tests use the same libvirtd."""
    assert http.ask("DELETE", f"/compute/v2.1/servers/{server}").status == 204
    until(lambda: not [name for name in libvirt.virsh("list", "--all", "--name") if server in name], 60, "it is gone")


def act(http: Http, server: str, action: Any, status: str) -> None:
    done = http.ask("POST", f"/compute/v2.1/servers/{server}/action", action)
    assert done.status == 202, done.body
    wait_for(http, server, status)


def console(http: Http, server: str) -> str:
    asked = {"os-getConsoleOutput": {"length": None}}
    return str(http.ask("POST", f"/compute/v2.1/servers/{server}/action", asked).json.get("output", ""))


def boots(number: int) -> str:
    return "".join(f"KILONOVA-GUEST boot={one + 1} root=image:tiny\n" for one in range(number))


def domain_of(libvirt: Libvirt, server: str) -> str:
    return next(name for name in libvirt.virsh("list", "--all", "--name") if server in name)
