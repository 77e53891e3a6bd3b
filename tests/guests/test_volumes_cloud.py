"""Volumes of real guests in a whole cloud: attached while they run, followed, grown, re-imaged, and found again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.services.volume.nbd import Nbd
from tests.guests.daemon import Libvirt
from tests.guests.test_cloud import (
    act,
    boots,
    console,
    create,
    data,
    delete,
    domain_of,
    serve,
    show,
    upload,
    wait_for,
)
from tests.guests.tiny_guest import SECTOR, image
from tests.support.nbd import NbdClient
from tests.support.program import Cloud, Http, until

data = data
GIBIBYTE = 1024**3
AT_293 = {"OpenStack-API-Version": "compute 2.93"}
AT_342 = {"OpenStack-API-Version": "volume 3.42"}


@pytest.fixture
def cloud(libvirt: Libvirt, data: Path) -> Iterator[Cloud]:
    with serve(libvirt, data) as running:
        yield running
    end_exports(data, "exports", "relays")


def end_exports(data: Path, *folders: str) -> None:
    """They outlive the cloud, as guests do."""
    for folder in folders:
        nbd = Nbd(data / folder)
        for name in nbd.names():
            nbd._signal(name, signal.SIGKILL)


def volume_at(http: Http, volume: str) -> Any:
    return http.ask("GET", f"/volume/v3/volumes/{volume}").json["volume"]


def settle(http: Http, volume: str, status: str) -> Any:
    until(lambda: volume_at(http, volume)["status"] == status, 30, lambda: str(volume_at(http, volume)))
    return volume_at(http, volume)


def new_volume(http: Http, **more: Any) -> str:
    made = http.ask("POST", "/volume/v3/volumes", {"volume": {"size": 1, **more}})
    assert made.status == 202, made.body
    settle(http, made.json["volume"]["id"], "available")
    return str(made.json["volume"]["id"])


def attach(http: Http, server: str, volume: str) -> None:
    body = {"volumeAttachment": {"volumeId": volume}}
    done = http.ask("POST", f"/compute/v2.1/servers/{server}/os-volume_attachments", body)
    assert done.status == 200, done.body
    settle(http, volume, "in-use")
    wait_for(http, server, show(http, server)["status"])


def detach(http: Http, server: str, volume: str) -> None:
    """Whoever sees the volume free may rely on it that nobody else writes to it: nothing else is waited for."""
    done = http.ask("DELETE", f"/compute/v2.1/servers/{server}/os-volume_attachments/{volume}")
    assert done.status == 202, done.body
    settle(http, volume, "available")


def xml_of(libvirt: Libvirt, server: str) -> str:
    command = ["virsh", "-q", "-c", libvirt.uri, "dumpxml", "--security-info", domain_of(libvirt, server)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def socket_in(xml: str) -> str:
    return xml.partition("socket='")[2].partition("'")[0]


def seen_size(libvirt: Libvirt, server: str) -> int:
    """Of its second disk, as QEMU shows it to the guest."""
    told = libvirt.virsh("domblkinfo", domain_of(libvirt, server), "vdb")
    return int(told[told.index("Capacity:") + 1])


def qemu_io(libvirt: Libvirt, server: str, command: str) -> None:
    """A request by the guest's own QEMU; the answer goes to QEMU's log."""
    monitor = ["virsh", "-q", "-c", libvirt.uri, "qemu-monitor-command", "--hmp", domain_of(libvirt, server)]
    told = subprocess.run([*monitor, "info block"], capture_output=True, text=True, check=True).stdout
    device = next(line.split()[-1] for line in told.split("\n") if "Attached to" in line and "ua-" in line)
    asked = f'qemu-io -d {device} "{command}"'
    subprocess.run([*monitor, asked], capture_output=True, check=True, timeout=100)


def test_a_running_guest_gets_a_volume_and_keeps_it(libvirt: Libvirt, data: Path, cloud: Cloud) -> None:
    http = cloud.http
    server, volume = create(http, upload(http)), new_volume(http)
    attach(http, server, volume)
    attachment = http.ask("GET", "/volume/v3/attachments/detail", None, {"OpenStack-API-Version": "volume 3.27"})
    (info,) = [one["connection_info"]["data"] for one in attachment.json["attachments"]]
    assert info["auth_password"] not in xml_of(libvirt, server) + cloud.log()
    qemu_io(libvirt, server, "write -P 7 1024 512")
    assert file_of(data, volume, 1024) == b"\7" * 512

    end_exports(data, "exports")  # a pending write completes once it is served again
    qemu_io(libvirt, server, "write -P 8 1024 512")
    assert file_of(data, volume, 1024) == b"\x08" * 512

    grown = {"os-extend": {"new_size": 2}}
    assert http.ask("POST", f"/volume/v3/volumes/{volume}/action", grown, AT_342).status == 202
    until(lambda: seen_size(libvirt, server) == 2 * GIBIBYTE, 30, lambda: str(seen_size(libvirt, server)))
    qemu_io(libvirt, server, f"write -P 9 {GIBIBYTE} 512")
    assert file_of(data, volume, GIBIBYTE) == b"\t" * 512
    wait_for(http, server, "ACTIVE")

    act(http, server, {"os-stop": None}, "SHUTOFF")
    act(http, server, {"os-start": None}, "ACTIVE")
    act(http, server, {"rebuild": {"imageRef": show(http, server)["image"]["id"]}}, "ACTIVE")
    flavor = {"flavor": {"name": "more", "id": "more", "vcpus": 1, "ram": 80, "disk": 1}}
    http.ask("POST", "/compute/v2.1/flavors", flavor)
    act(http, server, {"resize": {"flavorRef": "more"}}, "VERIFY_RESIZE")
    assert http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"confirmResize": None}).status == 204
    wait_for(http, server, "ACTIVE")
    qemu_io(libvirt, server, f"write -P 10 {GIBIBYTE} 512")
    assert file_of(data, volume, GIBIBYTE) == b"\n" * 512

    act(http, server, {"os-stop": None}, "SHUTOFF")  # this guest is too small to let go of a disk
    (export,) = data.glob("exports/*/s")
    with NbdClient(socket_in(xml_of(libvirt, server)), volume) as held, NbdClient(export, volume) as direct:
        assert held.write(0, b"x") and direct.write(0, b"x")
        detach(http, server, volume)
        assert sum(one.write(0, b"y") for one in (held, direct) for _ in range(1000)) == 0
    assert file_of(data, volume, 0, 1) == b"x"
    assert "socket=" not in xml_of(libvirt, server)
    delete(http, libvirt, server)


def file_of(data: Path, volume: str, at: int, length: int = 512) -> bytes:
    with (data / "volumes" / f"volume-{volume}").open("rb") as file:
        file.seek(at)
        return file.read(length)


def test_a_guest_boots_from_a_volume_that_outlives_the_cloud_and_is_reimaged(
    libvirt: Libvirt, data: Path, cloud: Cloud
) -> None:
    http = cloud.http
    image_id = upload(http)
    flavor = {"flavor": {"name": "none", "id": "none", "vcpus": 1, "ram": 64, "disk": 0}}
    http.ask("POST", "/compute/v2.1/flavors", flavor)
    disk = {"boot_index": 0, "uuid": image_id, "source_type": "image", "destination_type": "volume", "volume_size": 1}
    wish = {"name": "from-volume", "flavorRef": "none", "networks": "none", "block_device_mapping_v2": [disk]}
    made = http.ask("POST", "/compute/v2.1/servers", {"server": wish}, {"OpenStack-API-Version": "compute 2.37"})
    assert made.status == 202, made.body
    server = made.json["server"]["id"]
    wait_for(http, server, "ACTIVE")
    until(lambda: console(http, server) == boots(1), 30, lambda: console(http, server))
    (volume,) = [one["id"] for one in show(http, server)["os-extended-volumes:volumes_attached"]]
    cloud.kill9()  # with everything that it was; its guests and exports go on
    with NbdClient(socket_in(xml_of(libvirt, server)), volume) as client:
        assert client.read(SECTOR, 1) == b"1", "it is served while nobody is there"
    with serve(libvirt, data) as again:
        http = again.http
        wait_for(http, server, "ACTIVE")
        act(http, server, {"reboot": {"type": "HARD"}}, "ACTIVE")
        until(lambda: console(http, server).endswith("boot=2 root=image:tiny\n"), 30, lambda: console(http, server))
        new = http.ask(
            "POST", "/image/v2/images", {"name": "new", "disk_format": "raw", "container_format": "bare"}
        ).json["id"]
        content = {"Content-Type": "application/octet-stream"}
        assert http.ask("PUT", f"/image/v2/images/{new}/file", image("image:new"), content).status == 204
        done = http.ask("POST", f"/compute/v2.1/servers/{server}/action", {"rebuild": {"imageRef": new}}, AT_293)
        assert done.status == 202, done.body
        wait_for(http, server, "ACTIVE")
        until(lambda: "boot=1 root=image:new" in console(http, server), 30, lambda: console(http, server))
        delete(http, libvirt, server)
        until(lambda: not Nbd(data / "exports").names(), 30, "nothing is served any more")
        assert not Nbd(data / "relays").names()
