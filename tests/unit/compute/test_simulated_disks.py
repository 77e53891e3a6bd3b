"""Simulated disks: their sizes, their snapshots, the file that they are in, and what guests find besides them."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.compute.drivers.simulated.secret_contents import NOTHING, SecretContents, contents_line, given_by
from kilonova.compute.drivers.simulated.state_file import clouds_of_hosts
from kilonova.compute.drivers.simulated.storage import is_local
from kilonova.domain.errors import Failed
from kilonova.domain.guest_contents import GuestContents, GuestFile, GuestSecrets, PublicKey
from kilonova.domain.guest_ports import GuestPort
from kilonova.services.image.marker import LONGEST
from kilonova.world import GuestVolume
from tests.unit.compute.simulated_cloud import Cloud, spec

DATA = GuestVolume(attachment="a1", volume="v1", device="/dev/vdb")


# -- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["nothing", "a definition", "half a disk"])
def test_a_snapshot_needs_a_whole_disk(cloud: Cloud, there: str) -> None:
    driver = cloud.drivers["host1"]
    if there != "nothing":
        cloud.ask(driver.ensure_defined(spec()))
    if there == "half a disk":
        cloud.hardware.fail("host1", "ensure_disk", how="crash")
        cloud.loop.create_task(driver.ensure_disk(spec()))
        cloud.loop.run_for(1)
    with pytest.raises(Failed, match="copy 1 of server s1 has no complete disk on host1"):
        cloud.ask(driver.ensure_snapshot("s1", 1, "one"))
    with pytest.raises(Failed, match="host1 has no snapshot one of server s1") as why:
        cloud.ask(anext(driver.read_snapshot("s1", 1, "one")))
    assert why.value.final
    cloud.ask(driver.ensure_no_snapshot("s1", 1, "one"))


def test_a_snapshot_holds_as_much_as_an_image_can(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.boot()
    cloud.hardware.write("s1", "x" * (LONGEST - len("image:cirros+")))
    assert cloud.ask(driver.ensure_snapshot("s1", 1, "one")).size > 0
    cloud.hardware.write("s1", "y")
    with pytest.raises(Failed, match=f"at most {LONGEST} can be snapshotted") as why:
        cloud.ask(driver.ensure_snapshot("s1", 1, "two"))
    assert (why.value.code, why.value.final) == ("disk_too_large", True)


def test_a_snapshot_takes_its_time_once_and_goes_by_its_name(cloud: Cloud) -> None:
    slow = Cloud(1, copy_seconds=5)
    driver = slow.drivers["host1"]
    slow.boot()
    began = slow.loop.time()
    for _ in range(2):
        slow.ask(driver.ensure_snapshot("s1", 1, "one"))
        assert slow.loop.time() - began == 5
    slow.ask(driver.ensure_no_snapshot("s1", 1, "two"))
    slow.ask(anext(driver.read_snapshot("s1", 1, "one")))
    slow.ask(driver.ensure_no_snapshot("s1", 1, "one"))
    with pytest.raises(Failed, match="no snapshot one"):
        slow.ask(anext(driver.read_snapshot("s1", 1, "one")))
    slow.close()


def test_a_snapshot_of_a_copy_that_was_removed_meanwhile_is_none() -> None:
    slow = Cloud(1, copy_seconds=5)
    driver = slow.drivers["host1"]
    slow.boot()

    async def again() -> None:
        await driver.ensure_absent("s1", 1)
        slow.hardware.plant("host1", "s1", 1)

    slow.loop.call_later(2, lambda: slow.loop.create_task(again()))
    with pytest.raises(Failed, match="copy 1 of server s1 was removed from host1"):
        slow.ask(driver.ensure_snapshot("s1", 1, "one"))
    slow.close()


# -- what guests were given ------------------------------------------------------------------------------------------


def test_a_host_keeps_only_the_proof_that_secrets_arrived() -> None:
    secrets = GuestSecrets(user_data="aGVs\nbG8=", files=[GuestFile("/a", "eA=="), GuestFile("/b", "")])
    proof = given_by(secrets)
    assert proof == SecretContents(hashlib.sha256(b"hello").hexdigest(), ["/a", "/b"], False)
    assert given_by(GuestSecrets(admin_password="hunter2")) == SecretContents(password=True)
    assert given_by(GuestSecrets()) == NOTHING


def port(mac: str, tag: str) -> GuestPort:
    return GuestPort(port_id=mac, network_id="n", network_name="n", mac=mac, mtu=0, tag=tag)


@pytest.mark.parametrize(
    ("changes", "given", "line"),
    [
        ({}, NOTHING, ""),
        ({"contents": GuestContents(hostname="web")}, SecretContents(password=True), ""),
        ({"ports": [port("aa:bb", "")], "volumes": [DATA]}, NOTHING, ""),
        ({"ports": [port("aa:bb", ""), port("cc:dd", "front")]}, NOTHING, "tags=cc:dd=front"),
        ({"volumes": [DATA, msgspec.structs.replace(DATA, tag="data")]}, NOTHING, "tags=/dev/vdb=data"),
        ({"disk_tags": {"root": "system"}}, NOTHING, "tags=root=system"),
        (
            {
                "contents": GuestContents(
                    hostname="web",
                    public_keys=[PublicKey("mine", "ssh")],
                    metadata={"b": "2", "a": "1 2"},
                    config_drive=True,
                )
            },
            SecretContents("abc", ["/a", "/b"], True),
            "hostname=web keys=mine metadata=a=1%202,b=2 user_data=abc files=/a,/b config_drive=yes password=set",
        ),
    ],
)
def test_the_console_shows_what_a_guest_was_given(changes: dict[str, Any], given: SecretContents, line: str) -> None:
    expected = f"KILONOVA-CONTENTS {line}\n" if line else ""
    assert contents_line(spec(**changes), given) == expected


# -- the file --------------------------------------------------------------------------------------------------------


def remembered(path: Path, **clouds: dict[str, Any]) -> Cloud:
    cloud = Cloud(3, persist=path)
    for host, memory in clouds.items():
        cloud.hardware.remember(host, memory)
    return cloud


def test_the_clouds_of_all_hosts_are_read_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "hardware"
    mine = {"cloud": {"id": "c1", "seen": {}}, "key": "k"}
    remembered(path, host1=mine, host2={"key": "k"}, host3={"cloud": {"id": "c2"}}).close()
    before = sorted(one.name for one in tmp_path.iterdir())
    assert clouds_of_hosts(path) == {"host1": "c1", "host3": "c2"}
    assert sorted(one.name for one in tmp_path.iterdir()) == before == ["hardware"]


def test_a_file_without_hardware_has_no_clouds_and_no_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hardware"
    with pytest.raises(Failed, match="cannot be opened") as why:
        clouds_of_hosts(path)
    assert why.value.code == "hardware_unreadable" and not path.exists()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE another (x)")
    assert clouds_of_hosts(path) == {}
    path.write_bytes(b"this is not a database, and it is longer than a header of one would be" * 4)
    with pytest.raises(Failed, match="cannot be opened"):
        clouds_of_hosts(path)


def test_hardware_is_found_after_a_kill_without_its_log_being_written_back(tmp_path: Path) -> None:
    path, copy = tmp_path / "hardware", tmp_path / "copy"
    cloud = remembered(path, host1={"cloud": {"id": "c1"}})
    copy.write_bytes(path.read_bytes())
    (tmp_path / "copy-wal").write_bytes((tmp_path / "hardware-wal").read_bytes())
    cloud.close()
    assert clouds_of_hosts(copy) == {"host1": "c1"}


# -- disks -----------------------------------------------------------------------------------------------------------


def test_a_swap_disk_of_another_size_is_made_again_and_others_grow(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    first = spec(disk_gb=5, ephemeral_gb=[2], swap_mb=64)
    cloud.ask(driver.ensure_disk(first))
    disk = cloud.hardware.disk(cloud.hardware.host("host1"), "s1", 1)
    assert disk is not None
    for name in ("ephemeral0", "swap"):
        cloud.hardware.storage.append(disk, "note", name)
    cloud.ask(driver.ensure_disk_size(first))
    assert disk.described() == ["root=5G", "ephemeral0=2G:blank+note", "swap=64M:blank+note"], "it fits"
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=5, ephemeral_gb=[3], swap_mb=64)))
    assert disk.described() == ["root=5G", "ephemeral0=3G:blank+note", "swap=64M:blank+note"]
    for swap in (32, 128):
        cloud.ask(driver.ensure_disk_size(spec(disk_gb=5, ephemeral_gb=[3], swap_mb=swap)))
        assert disk.described()[2] == f"swap={swap}M:blank"
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=5, ephemeral_gb=[3])))
    assert disk.described() == ["root=5G", "ephemeral0=3G:blank+note"]


@pytest.mark.parametrize(
    ("guest", "what"),
    [(spec(disk_gb=4, ephemeral_gb=[2]), "root"), (spec(disk_gb=5, ephemeral_gb=[1]), "ephemeral0")],
)
def test_which_disk_cannot_shrink_is_said(cloud: Cloud, guest: Any, what: str) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec(disk_gb=5, ephemeral_gb=[2])))
    with pytest.raises(Failed, match=f"{what} disk of copy 1 of server s1 cannot shrink") as why:
        cloud.ask(driver.ensure_disk_size(guest))
    assert why.value.final


def test_a_disk_of_no_size_keeps_the_one_it_has(cloud: Cloud) -> None:
    """A flavor without a disk: it is as large as the image."""
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec(disk_gb=5)))
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=0)))
    disk = cloud.hardware.disk(cloud.hardware.host("host1"), "s1", 1)
    assert disk is not None and (disk.size_gb, disk.grown) == (5, False)


Verb = Callable[[Cloud], Awaitable[Any]]


@pytest.mark.parametrize(
    ("verb", "described"),
    [
        (lambda cloud: cloud.drivers["host1"].ensure_disk_size(spec(disk_gb=7)), ["root=7G"]),
        (
            lambda cloud: cloud.drivers["host1"].ensure_disk_size(spec(disk_gb=5, ephemeral_gb=[1])),
            ["root=5G", "ephemeral0=1G:blank"],
        ),
    ],
    ids=["grown", "one more"],
)
def test_sizes_are_there_after_a_restart(tmp_path: Path, verb: Verb, described: list[str]) -> None:
    first = Cloud(1, persist=tmp_path / "hardware")
    first.ask(first.drivers["host1"].ensure_disk(spec(disk_gb=5)))
    first.ask(verb(first))
    first.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    (disk,) = again.hardware.storage.all()
    assert disk.described() == described and disk.grown is (described[0] == "root=7G")
    again.close()


def test_who_holds_a_disk_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Cloud(2, persist=tmp_path / "hardware", shared_storage="nfs1")
    first.boot("host1")
    first.ask(first.drivers["host2"].ensure_disk(spec(copy=2), adopt=1))
    first.ask(first.drivers["host1"].ensure_absent("s1", 1))
    first.close()
    again = Cloud(2, persist=tmp_path / "hardware", shared_storage="nfs1")
    (disk,) = again.hardware.storage.all()
    assert (disk.names, disk.holders) == ([1, 2], [("host2", 2)])
    again.ask(again.drivers["host2"].ensure_absent("s1", 2))
    again.close()
    third = Cloud(2, persist=tmp_path / "hardware", shared_storage="nfs1")
    assert third.hardware.storage.all() == []
    third.close()


def test_a_root_disk_stays_as_it_is_while_others_change(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(spec(disk_gb=5)))
    disk = cloud.hardware.disk(cloud.hardware.host("host1"), "s1", 1)
    assert disk is not None
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=0, ephemeral_gb=[1])))
    assert (disk.size_gb, disk.grown) == (5, False)
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=7, ephemeral_gb=[1])))
    cloud.ask(driver.ensure_disk_size(spec(disk_gb=7, ephemeral_gb=[2])))
    assert (disk.size_gb, disk.grown) == (7, True)


def test_only_ephemeral_disks_of_the_flavor_are_kept_also_after_a_restart(tmp_path: Path) -> None:
    first = Cloud(1, persist=tmp_path / "hardware")
    driver = first.drivers["host1"]
    first.ask(driver.ensure_disk(spec(copy=1, ephemeral_gb=[1, 1])))
    first.ask(driver.ensure_ephemeral(spec(copy=2, ephemeral_gb=[1]), of_copy=1))
    first.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    disk = again.hardware.disk(again.hardware.host("host1"), "s1", 2)
    assert disk is not None and [*disk.others] == ["ephemeral0"]
    again.close()


def test_a_snapshot_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Cloud(1, persist=tmp_path / "hardware")
    first.boot()
    first.ask(first.drivers["host1"].ensure_snapshot("s1", 1, "one"))
    first.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    assert again.ask(anext(again.drivers["host1"].read_snapshot("s1", 1, "one")))
    again.close()


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("swap", True), ("ephemeral0", True), ("ephemeral12", True), ("ephemeral", False), ("0", False), ("root", False)],
)
def test_local_disks_are_known_by_their_names(name: str, is_one: bool) -> None:
    assert is_local(name) is is_one
