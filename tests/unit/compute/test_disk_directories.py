"""Directories of copies: QEMU's user passes through them, and nobody else sees what is in them."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.libvirt import disks as module
from kilonova.compute.drivers.libvirt.disks import Disks, link, storage_id
from kilonova.compute.drivers.libvirt.images import Bases, FolderImages


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def on(root: Path, host: str = "host1") -> Disks:
    return Disks(root, host, Bases(root, FolderImages(root / "images")))


@pytest.mark.parametrize(
    "make", [storage_id, lambda root: on(root).ready_directory("s", 1), lambda root: on(root).prepare()]
)
def test_what_is_made_can_be_passed_and_not_read_and_what_is_there_stays(tmp_path: Path, make: Any) -> None:
    above, root = tmp_path / "above", tmp_path / "above" / "root"
    make(root)
    assert mode(root) == 0o711 and mode(above) == mode(tmp_path / "above") != 0o711
    assert all(mode(path) == 0o711 for path in root.rglob("*") if path.is_dir())
    root.chmod(0o750)
    make(root)
    assert mode(root) == 0o750, "an operator may want it so"


def test_a_copy_has_its_directory_whoever_made_those_above(tmp_path: Path) -> None:
    place = on(tmp_path).ready_directory("s", 7, "host2")
    assert place == tmp_path / "host2/s/7" and place.is_dir()
    on(tmp_path).prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host1", "host2"]


def test_the_copies_of_a_host_are_its_numbered_directories(tmp_path: Path) -> None:
    for server, copy, host in (("b", 10, ""), ("b", 9, ""), ("a", 1, ""), ("c", 1, "host2")):
        on(tmp_path).ready_directory(server, copy, host)
    (tmp_path / "host1/b/lost+found").mkdir()
    (tmp_path / "host1/file").touch()
    assert on(tmp_path).all() == [("a", 1), ("b", 9), ("b", 10)]
    assert on(tmp_path, "host3").all() == []


def test_a_file_has_one_more_name_in_place_of_another(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    for _ in range(2):
        link(source, target)
        assert target.samefile(source) and source.stat().st_nlink == 2
    link(source, tmp_path / "third")
    assert source.stat().st_nlink == 3


def test_a_removed_copy_takes_its_directory_along_and_the_server_that_has_no_other(tmp_path: Path) -> None:
    disks = on(tmp_path)
    for copy in (1, 2):
        place = disks.ready_directory("s", copy)
        for name in ("disk.qcow2", "swap.raw", "config.iso"):
            (place / name).touch()
    disks.remove("s", 1)
    disks.remove("s", 1)
    assert disks.all() == [("s", 2)] and disks.is_whole("s", 2) and not disks.is_whole("s", 1)
    (disks.directory("s", 2) / "lost+found").mkdir()
    disks.remove("s", 2)
    assert list((tmp_path / "host1").iterdir()) == []


def test_the_disk_is_the_last_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is there, the copy is one that somebody removes, also after a crash."""
    place, gone = on(tmp_path).ready_directory("s", 1), list[str]()
    for name in ("a", "disk.qcow2", "z", "config.iso"):
        (place / name).touch()
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **kw: (gone.append(path.name), unlink(path, **kw)))
    on(tmp_path).remove("s", 1)
    assert sorted(gone) == ["a", "config.iso", "disk.qcow2", "z"] and gone[-1] == "disk.qcow2"


def test_the_disk_of_a_copy_is_found_on_any_host_that_has_it(tmp_path: Path) -> None:
    assert on(tmp_path).find("s", 1) is None
    (on(tmp_path).ready_directory("s", 1) / "disk.half").touch()
    assert on(tmp_path).find("s", 1) is None and not on(tmp_path).adopt("s", 2, 1)
    there = on(tmp_path, "host2").ready_directory("s", 1) / "disk.qcow2"
    there.touch()
    assert on(tmp_path).find("s", 1) == there


def test_an_adopted_disk_that_is_there_stays(tmp_path: Path) -> None:
    disks = on(tmp_path)
    old, new = disks.ready_directory("s", 1), disks.ready_directory("s", 2)
    for name in ("disk.qcow2", "ephemeral0.qcow2", "base.raw"):
        (old / name).write_bytes(b"old")
    (new / "ephemeral0.qcow2").write_bytes(b"new")
    (old / "reserved.json").touch()
    assert disks.adopt("s", 2, 1) and disks.adopt("s", 2, 1)
    assert {path.name: path.read_bytes() for path in new.iterdir()} == {
        "disk.qcow2": b"old",
        "ephemeral0.qcow2": b"new",
        "base.raw": b"old",
    }


def test_a_disk_that_has_its_size_is_not_resized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    async def run(*words: str, seconds: float = 0.0) -> str:
        commands.append(words[1])
        return json.dumps({"virtual-size": 100})

    monkeypatch.setattr(module, "run", run)
    disk = tmp_path / "disk.qcow2"
    asyncio.run(on(tmp_path)._grow(disk, 100))
    assert commands == ["info"]
    asyncio.run(on(tmp_path)._grow(disk, 101))
    assert commands == ["info", "info", "resize"]
