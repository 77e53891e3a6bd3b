"""One server through everything that keeps or replaces its disks, on real hosts; each move is seen in the guest.

Six boots, and a guest without a system for a resize on the same host. The server's id, port, MAC, address and volume
are the same to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.program import until

if TYPE_CHECKING:
    from tests.guests.lab_servers import Cloud, LabServer

FILE, EPHEMERAL = "/root/file", "/mnt/file"
SMALL_MB, LARGE_MB = range(900, 1024), range(1900, 2048)
SECOND = "#!/bin/sh\necho second >/root/user-data-ran\n"
FEW_BYTES = 1024**2  # of an empty layer
NAMES_A_HOST, TAKES_KEYS = "compute 2.56", "compute 2.57"


@pytest.fixture(scope="module")
def booted(guests: tuple[LabServer, LabServer]) -> tuple[LabServer, Any]:
    """A server on host1 and what never changes of it."""
    web, _ = guests
    web.says()
    return web, web.identity()


@pytest.fixture
def server(booted: tuple[LabServer, Any]) -> Iterator[LabServer]:
    guest, identity = booted
    yield guest
    assert guest.identity() == identity
    assert guest.cloud.lab.where(guest.id) == [guest.host]


def test_all_that_a_guest_wrote_goes_along_to_a_host_that_shares_nothing(cloud: Cloud, server: LabServer) -> None:
    """Stopped, moved and started, which takes one boot. It was given its volume while it ran."""
    lab, volume = cloud.lab, server.ensure_volume()
    write(server, "mine")
    boots = server.boots()
    assert (lab.served(volume), lab.opened(volume)) == (["host1"], ["host1"])
    server.act({"os-stop": None}, "SHUTOFF")
    server.act({"migrate": {"host": "host3"}}, "VERIFY_RESIZE", NAMES_A_HOST)
    assert server.host == "host3"
    assert sent(cloud, "host1", server) == 1
    assert (lab.served(volume), lab.opened(volume)) == (["host3"], ["host3"]), "the source has let go of it"
    assert lab.hosts["host1"].disks(server.id), "kept until it is confirmed"
    confirm(cloud, server, "SHUTOFF")
    server.act({"os-start": None}, "ACTIVE")
    server.booted(boots + 1)
    assert read(server) == ("mine", "mine", "mine")
    until(lambda: not lab.hosts["host1"].disks(server.id), 30, "the source is clean")


def test_a_rebuild_from_a_snapshot_brings_the_old_content_back(cloud: Cloud, server: LabServer) -> None:
    """Story R6."""
    made = cloud.post(f"/compute/v2.1/servers/{server.id}/action", {"createImage": {"name": "before"}})
    image = made.headers["Location"].rpartition("/")[2]
    shown = f"/image/v2/images/{image}"
    until(lambda: cloud.http.ask("GET", shown).json["status"] == "active", 120, f"{shown} is active")
    server.wait_for("ACTIVE")
    write(server, "changed")
    boots = server.boots()
    server.act({"rebuild": {"imageRef": image}}, "ACTIVE")
    server.booted(boots + 1)
    assert (server.ssh(f"cat {FILE}"), server.read_volume()) == ("mine", "changed"), "a volume is not part of it"
    assert server.ssh("ls /mnt") == "lost+found", "an ephemeral disk is new, unless it was asked to be kept"


def test_a_rebuild_with_another_key_and_script(cloud: Cloud, server: LabServer) -> None:
    from tests.guests.lab_servers import encoded

    rebuild = {"imageRef": cloud.image, "key_name": "second", "user_data": encoded(SECOND)}
    server.act({"rebuild": rebuild}, "ACTIVE", TAKES_KEYS)
    server.booted(1)
    server.key = cloud.keys["second"]
    assert server.ssh(f"cat /root/user-data-ran; test -e {FILE} || echo gone") == "second\ngone"
    assert server.read_volume() == "changed"
    assert server.refuses(cloud.keys["first"])


def test_a_resize_is_reverted(cloud: Cloud, server: LabServer) -> None:
    """To a host that shares nothing with the first."""
    lab, volume = cloud.lab, server.volume
    write(server, "before")
    with lab.only("host2"):
        server.act({"resize": {"flavorRef": "large"}}, "VERIFY_RESIZE")
    assert server.host == "host2"
    assert lab.opened(volume) == ["host2"]
    server.booted(2)
    assert read(server) == ("before", "before", "before")
    assert root_mb(server) in LARGE_MB and swap_mb(server) == 31
    write(server, "in-between")
    server.act({"revertResize": None}, "ACTIVE")
    assert server.host == "host3"
    server.booted(2)
    assert read(server) == ("before", "before", "in-between"), "local disks are as they were when the resize began"
    assert root_mb(server) in SMALL_MB and swap_mb(server) == 15
    assert lab.hosts["host2"].disks(server.id) == []
    assert (lab.served(volume), lab.opened(volume)) == (["host3"], ["host3"])


def test_a_resize_is_confirmed_and_nothing_is_copied_on_shared_storage(cloud: Cloud, server: LabServer) -> None:
    """Moved three times while it is stopped, which saves boots: larger and without shared storage to host1, from there
    to host2 and back."""
    lab = cloud.lab
    server.act({"os-stop": None}, "SHUTOFF")
    with lab.only("host1"):
        server.act({"resize": {"flavorRef": "large"}}, "VERIFY_RESIZE")
    confirm(cloud, server, "SHUTOFF")
    until(lambda: not lab.hosts["host3"].disks(server.id), 30, "the source is clean")
    assert not [name for name in lab.hosts["host3"].virsh("list", "--all", "--name") if server.id in name]
    for source, destination in (("host1", "host2"), ("host2", "host1")):
        before = sent(cloud, source, server)
        server.act({"migrate": {"host": destination}}, "VERIFY_RESIZE", NAMES_A_HOST)
        assert server.host == destination
        (old,), (new,) = (lab.hosts[host].disks(server.id) for host in (source, destination))
        layers = [path for path in new.glob("disk.*.layer") if path.samefile(old / "disk.qcow2")]
        assert len(layers) == 1 and sent(cloud, source, server) == before, "nothing was copied"
        assert (new / "disk.qcow2").stat().st_blocks * 512 < FEW_BYTES
        confirm(cloud, server, "SHUTOFF")
        until(lambda host=source: not lab.hosts[host].disks(server.id), 30, "the source is clean")  # type: ignore[misc]
    server.act({"os-start": None}, "ACTIVE")
    server.booted(3)
    assert read(server) == ("before", "before", "in-between")
    assert root_mb(server) in LARGE_MB


def test_a_resize_on_the_same_host(cloud: Cloud) -> None:
    """It counts its boots on its disk, which is kept, and larger. On local storage."""
    lab, server = cloud.lab, cloud.create_tiny("grows", "host3").wait_for("ACTIVE")
    until(lambda: "boot=1 " in server.console(), 30, server.console)
    with lab.only("host3"):
        server.act({"resize": {"flavorRef": "large"}}, "VERIFY_RESIZE")
    until(lambda: "boot=2 " in server.console(), 30, server.console)
    assert (server.host, len(lab.hosts["host3"].disks(server.id))) == ("host3", 2)
    confirm(cloud, server)
    until(lambda: len(lab.hosts["host3"].disks(server.id)) == 1, 30, "the copy before is gone")
    assert lab.where(server.id) == ["host3"]
    server.delete()


def write(server: LabServer, text: str) -> None:
    server.ssh(f"echo {text} >{FILE}; echo {text} >{EPHEMERAL}; sync")
    server.write_volume(text)


def read(server: LabServer) -> tuple[str, ...]:
    """What is on its root, on its ephemeral disk and on its volume."""
    return *server.ssh(f"cat {FILE} {EPHEMERAL}").split("\n"), server.read_volume()


def sent(cloud: Cloud, host: str, server: LabServer) -> int:
    """How often its disks went over the network, as the agent's log says."""
    return cloud.lab.roles[host].log().count(f"disks sent: server={server.id}")


def root_mb(server: LabServer) -> int:
    return int(server.ssh("df -m / | tail -n1").split()[1])


def swap_mb(server: LabServer) -> int:
    return int(server.ssh("tail -n1 /proc/swaps").split()[2]) // 1024


def confirm(cloud: Cloud, server: LabServer, status: str = "ACTIVE") -> None:
    cloud.post(f"/compute/v2.1/servers/{server.id}/action", {"confirmResize": None})
    server.wait_for(status)
