"""Ephemeral and swap disks of simulated guests: made with the root disk, kept or lost with what happens to it."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.world import GuestSpec
from tests.unit.compute.simulated_cloud import Cloud, spec

LOCAL: dict[str, Any] = {"disk_gb": 10, "ephemeral_gb": [4, 2], "swap_mb": 256}


def guest(copy: int = 1, **changes: Any) -> GuestSpec:
    return spec(copy=copy, **LOCAL | changes)


def described(cloud: Cloud, copy: int = 1, host: str = "host1") -> str:
    disk = cloud.hardware.disk(cloud.hardware.host(host), "s1", copy)
    return "none" if disk is None else " ".join(disk.described())


def booted(cloud: Cloud) -> None:
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(guest()))
    cloud.ask(driver.ensure_defined(guest()))
    cloud.ask(driver.ensure_power("s1", 1, on=True))
    for disk in ("root", "ephemeral0", "ephemeral1", "swap"):
        cloud.hardware.write("s1", f"in-{disk}", name=disk)


def sent(cloud: Cloud, host: str = "host2") -> None:
    cloud.ask(cloud.drivers["host1"].ensure_power("s1", 1, on=False))
    cloud.ask(cloud.drivers["host1"].send_disk("s1", 1, to_host=host, to_copy=2))


def test_they_are_made_with_the_root_disk_and_shown_on_the_console(cloud: Cloud) -> None:
    booted(cloud)
    console = cloud.ask(cloud.drivers["host1"].console("s1", 1)).splitlines()
    assert console[0] == "KILONOVA-DISKS root=10G ephemeral0=4G:blank ephemeral1=2G:blank swap=256M:blank"
    assert described(cloud).endswith("ephemeral1=2G:blank+in-ephemeral1 swap=256M:blank+in-swap")
    with pytest.raises(Refused, match="it has no disk 'ephemeral2'; use one of root, ephemeral0, ephemeral1, swap"):
        cloud.hardware.write("s1", "x", name="ephemeral2")


def test_ephemeral_disks_are_sent_and_swap_is_made_again(cloud: Cloud) -> None:
    booted(cloud)
    sent(cloud)
    assert described(cloud, 2, "host2").endswith("ephemeral1=2G:blank+in-ephemeral1"), "no swap"
    for _ in range(2):
        cloud.ask(cloud.drivers["host2"].ensure_disk_size(guest(2)))
    assert described(cloud, 2, "host2").endswith("swap=256M:blank")
    assert described(cloud).endswith("swap=256M:blank+in-swap"), "the original is as it was"


def test_disks_grow_appear_and_never_shrink(cloud: Cloud) -> None:
    booted(cloud)
    sent(cloud)
    driver = cloud.drivers["host2"]
    larger = guest(2, disk_gb=20, ephemeral_gb=[8, 2, 1], swap_mb=0)
    for _ in range(2):
        cloud.ask(driver.ensure_disk_size(larger))
    grown = "root=20G ephemeral0=8G:blank+in-ephemeral0 ephemeral1=2G:blank+in-ephemeral1 ephemeral2=1G:blank"
    assert described(cloud, 2, "host2") == grown
    for smaller in (guest(2, disk_gb=10, ephemeral_gb=[8, 2, 1]), guest(2, disk_gb=20, ephemeral_gb=[8])):
        with pytest.raises(Failed, match="cannot shrink") as failed:
            cloud.ask(driver.ensure_disk_size(smaller))
        assert failed.value.final
    assert described(cloud, 2, "host2") == grown


def test_a_running_guest_is_only_left_alone(cloud: Cloud) -> None:
    """After a crash the step is done again: by then the guest may run with the sizes it shall have."""
    booted(cloud)
    cloud.ask(cloud.drivers["host1"].ensure_disk_size(guest()))
    with pytest.raises(Failed, match="stop it first"):
        cloud.ask(cloud.drivers["host1"].ensure_disk_size(guest(disk_gb=20)))
    assert described(cloud).startswith("root=10G")


def test_the_root_disk_of_a_guest_that_boots_from_a_volume_has_no_size(cloud: Cloud) -> None:
    from kilonova.world import GuestVolume

    driver, root = cloud.drivers["host1"], GuestVolume(attachment="a", volume="v", is_root=True)
    cloud.ask(driver.ensure_disk(guest(volumes=[root])))
    cloud.ask(driver.ensure_disk_size(guest(disk_gb=1, volumes=[root])))
    assert "root=" not in described(cloud)


def test_a_new_copy_gets_the_ephemeral_disks_of_the_old_one(cloud: Cloud) -> None:
    booted(cloud)
    driver = cloud.drivers["host1"]
    cloud.ask(driver.ensure_disk(guest(2, image="other")))
    with pytest.raises(Failed, match="stop it first"):
        cloud.ask(driver.ensure_ephemeral(guest(2), of_copy=1))
    cloud.ask(driver.ensure_power("s1", 1, on=False))
    for _ in range(2):
        cloud.ask(driver.ensure_ephemeral(guest(2), of_copy=1))
    kept = "ephemeral0=4G:blank+in-ephemeral0 ephemeral1=2G:blank+in-ephemeral1"
    assert described(cloud, 2) == f"root=10G {kept} swap=256M:blank"


def test_they_are_there_after_a_restart(tmp_path: Any) -> None:
    first = Cloud(1, persist=tmp_path / "hardware")
    booted(first)
    before = described(first)
    first.close()
    again = Cloud(1, persist=tmp_path / "hardware")
    assert described(again) == before
    again.close()
