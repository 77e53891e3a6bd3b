"""The guest image: it is built, boots, and does what a config drive says. Three boots, under QEMU's TCG."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guests.qemu import Guest, SshFailed

SERVER, OTHER = "5e7e0000-0000-4000-8000-0000000000a1", "5e7e0000-0000-4000-8000-0000000000a2"
PASSWORD = 'Pa$s "word"\\n'
Disks = list[tuple[Path, str]]
SCRIPT = "#!/bin/bash\necho {0} >/root/user-data-ran\necho {0} >/marker\n"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("keys")
    for name in ("first", "second"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    return {name: directory / name for name in ("first", "second")}


@dataclass
class Cloud:
    """The disks of one guest, and its config drive."""

    guest: Guest
    image: Path

    def disk(self, name: str, size: str, backing: Path | None = None) -> Path:
        path = self.guest.dir / f"{name}.qcow2"
        based = ["-b", str(backing), "-F", "qcow2"] if backing else []
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *based, path, size], check=True)
        return path

    def config(self, server: str, key: Path, user_data: str, name: str) -> Path:
        """The directory that a config drive or the metadata service shows."""
        tree = self.guest.dir / f"config-{name}"
        (tree / "openstack/latest").mkdir(parents=True)
        (tree / "openstack/content").mkdir()
        metadata = {
            "uuid": server,
            "name": name,
            "hostname": f"{name}.novalocal",
            "admin_pass": PASSWORD,
            "public_keys": {"mine": key.with_suffix(".pub").read_text()},
            "files": [{"path": "/etc/motd", "content_path": "/content/0000"}],
            "meta": {"quoted": 'a "b" \\ \u00e9 \n'},
        }
        (tree / "openstack/latest/meta_data.json").write_text(json.dumps(metadata))
        (tree / "openstack/latest/user_data").write_text(user_data)
        (tree / "openstack/content/0000").write_text(f"welcome to {name}\n")
        return tree

    def drive(self, config: Path) -> Path:
        iso = config.with_suffix(".iso")
        subprocess.run(["genisoimage", "-quiet", "-J", "-r", "-V", "config-2", "-o", iso, config], check=True)
        return iso


@pytest.fixture
def cloud(guest_image: Path, tmp_path: Path) -> Iterator[Cloud]:
    guest = Guest(tmp_path)
    yield Cloud(guest, guest_image)
    guest.kill()


def test_the_image_boots_and_does_what_the_cloud_says(cloud: Cloud, keys: dict[str, Path]) -> None:
    """In one test, since each boot takes seconds and goes on where the one before ended."""
    root = cloud.disk("root", "1G", cloud.image)
    disks = [(root, ""), (cloud.disk("eph", "64M"), "ephemeral0"), (cloud.disk("swap", "16M"), "swap")]
    disks += [(cloud.disk("volume", "16M"), "volume")]
    config = cloud.config(SERVER, keys["first"], SCRIPT.format("one"), "web")
    drive = cloud.drive(config)
    seconds = [
        first_boot(cloud, disks, drive, keys),
        second_boot_of_larger_disks(cloud, disks, drive, keys["first"]),
        copied_disk_is_another_instance(cloud, disks, keys),
    ]
    size = cloud.image.stat().st_size / 2**20
    print(f"guest image: {size:.1f} MiB; CPU seconds of each boot: {', '.join(f'{cpu:.1f}' for cpu in seconds)}")


def first_boot(cloud: Cloud, disks: Disks, drive: Path, keys: dict[str, Path]) -> float:
    guest, key = cloud.guest, keys["first"]
    guest.start(disks, drive=drive)
    lines = guest.says("KILONOVA-GUEST")
    cpu = guest.cpu_seconds()
    assert "KILONOVA-GUEST name=web boot=1 root=one volumes=" in lines, lines
    assert guest.ssh("cat /root/user-data-ran /etc/motd; hostname", key=key) == "one\nwelcome to web\nweb"
    assert guest.ssh("id -un", key=key, user="guest") == "guest"
    assert guest.ssh("id -un", password=PASSWORD) == "root"
    with pytest.raises(SshFailed, match="Permission denied"):
        guest.ssh("true", key=keys["second"])
    with pytest.raises(SshFailed, match="Permission denied"):
        guest.ssh("true", password="wrong")
    assert int(guest.ssh("df -m / | awk 'NR == 2 { print $2 }'", key=key)) > 900, "the root fills the disk"
    assert "/dev/vdc" in guest.ssh("cat /proc/swaps", key=key)
    assert guest.ssh("tr -d '\\0' </dev/vdd | wc -c", key=key) == "0", "a blank volume stays blank"
    guest.ssh("echo kept >/root/file; echo kept >/mnt/file; echo data >/dev/vdd; sync", key=key)
    assert guest.power_button() < 3
    return cpu


def second_boot_of_larger_disks(cloud: Cloud, disks: Disks, drive: Path, key: Path) -> float:
    guest = cloud.guest
    for (path, _), size in zip(disks, ("2G", "256M"), strict=False):
        subprocess.run(["qemu-img", "resize", "-q", path, size], check=True)
    guest.start(disks, drive=drive)
    lines = guest.says("KILONOVA-GUEST")
    cpu = guest.cpu_seconds()
    assert "KILONOVA-GUEST name=web boot=2 root=one volumes=data" in lines, lines
    assert not any("user data" in line for line in lines), "it runs once"
    assert guest.ssh("cat /root/file /mnt/file", key=key) == "kept\nkept"
    sizes = guest.ssh("df -m / /mnt | awk 'NR > 1 { print $2 }'", key=key).split()
    assert int(sizes[0]) > 1900 and int(sizes[1]) > 220, sizes
    guest.attach(cloud.disk("more", "8M"), "more")
    guest.says("volumes=data,")
    guest.attach(cloud.disk("image", "100M", cloud.image), "image")
    guest.says("volumes=data,,image:kilonova-guest")  # in a partition, behind a boot sector that is not text
    format_it = "/sbin/mke2fs -q -t ext4 /dev/vdd && mount /dev/vdd /media && echo filed >/media/marker"
    guest.ssh(f"mkdir -p /media && {format_it} && sync", key=key)
    guest.power_button()
    return cpu


def copied_disk_is_another_instance(cloud: Cloud, disks: Disks, keys: dict[str, Path]) -> float:
    """Files stay; keys, user data and the host's own key are the new instance's. It asks the metadata service."""
    guest = cloud.guest
    config = cloud.config(OTHER, keys["second"], SCRIPT.format("two"), "copy")
    guest.start([(cloud.disk("snapshot", "2G", disks[0][0]), ""), disks[-1]], metadata=config)
    lines = guest.says("KILONOVA-GUEST")
    cpu = guest.cpu_seconds()
    assert "KILONOVA-GUEST name=copy boot=3 root=two volumes=filed" in lines, lines
    files = "cat /root/file /root/user-data-ran /etc/motd; hostname"
    assert guest.ssh(files, key=keys["second"]) == "kept\ntwo\nwelcome to copy\ncopy"
    with pytest.raises(SshFailed, match="Permission denied"):
        guest.ssh("true", key=keys["first"])
    host_keys = [line for line in guest.console().splitlines() if line.startswith("kilonova: host key SHA256:")]
    assert len(host_keys) == 3 and host_keys[0] == host_keys[1] != host_keys[2]
    return cpu
