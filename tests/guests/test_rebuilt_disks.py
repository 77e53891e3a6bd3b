"""A rebuild that removes the old disk first, on real disks: what the owner keeps is in the new copy."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt import rebuild_room
from kilonova.compute.drivers.libvirt.disks import GIB, Disks
from kilonova.compute.drivers.libvirt.images import Bases, FolderImages
from kilonova.compute.drivers.libvirt.moves import Moves
from kilonova.compute.drivers.libvirt.rebuild_room import RebuildRoom
from kilonova.compute.transfer.sender import DiskSender
from kilonova.domain.driver import INSTEAD
from kilonova.domain.guest import GuestSpec

MIB = 1024**2
WRITTEN = 8 * MIB


def guest(copy: int, image: str) -> GuestSpec:
    sizes = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1, "ephemeral_gb": [1]}
    return GuestSpec(server="s", copy=copy, name="a", image=image, image_format="raw", **sizes)


def qemu_io(disk: Path, command: str) -> str:
    words = ["qemu-io", "-f", "qcow2", "-c", command, str(disk)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("preserves", [True, False], ids=["ephemeral disk kept", "ephemeral disk made again"])
def test_the_old_disk_goes_and_the_ephemeral_disk_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preserves: bool
) -> None:
    (tmp_path / "images").mkdir()
    for name, byte in (("old", b"o"), ("new", b"n")):
        (tmp_path / "images" / name).write_bytes(byte * MIB)
    bases = Bases(tmp_path / "root", FolderImages(tmp_path / "images"))
    disks = Disks(tmp_path / "root", "host1", bases)
    moves = Moves("host1", disks, bases, DiskSender(), "")
    room = RebuildRoom(tmp_path / "root", disks, bases)

    async def rebuild() -> str:
        await disks.make(guest(1, "old"))
        old = disks.directory("s", 1)
        for name in ("disk.qcow2", "ephemeral0.qcow2"):
            qemu_io(old / name, f"write -P 7 {2 * MIB} {WRITTEN}")
        needed = MIB + GIB + (0 if preserves else GIB)
        monkeypatch.setattr(rebuild_room, "free_bytes", lambda folder: needed - WRITTEN)
        found = await room.find(guest(2, "new"), 1, None, keeps_ephemeral=preserves)
        if preserves:
            await moves.keep_ephemerals(guest(2, "new"), 1)
        disks.remove("s", 1)
        await disks.make(guest(2, "new"))
        return found

    assert asyncio.run(rebuild()) == INSTEAD, "the old root disk alone makes up for what is missing"
    new = disks.directory("s", 2)
    assert not disks.directory("s", 1).exists()
    reads = (
        ("disk.qcow2", f"read -P {ord('n')} 0 {MIB}"),
        ("disk.qcow2", f"read -P 0 {2 * MIB} {WRITTEN}"),
        ("ephemeral0.qcow2", f"read -P {7 if preserves else 0} {2 * MIB} {WRITTEN}"),
    )
    for name, command in reads:
        assert "verification failed" not in qemu_io(new / name, command), (name, command)
