"""The config drive of a guest on a host: an ISO image that only its owner can read, whole or not at all."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt import config_drive
from kilonova.compute.drivers.libvirt.config_drive import ensure_config_drive, write_iso
from kilonova.compute.drivers.libvirt.disks import CONFIG_DRIVE
from kilonova.domain.errors import Failed
from kilonova.domain.guest_contents import GuestFile, GuestSecrets
from tests.support.flushing import Flushes
from tests.unit.compute.simulated_cloud import spec


@pytest.fixture(autouse=True)
def archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """genisoimage may not be installed: an archive has files in folders, too, and can be read."""

    async def archive(*words: str, seconds: float = 60.0) -> str:
        assert words[0] == "genisoimage" and words[words.index("-V") + 1] == "config-2", "guests find it by its label"
        return pack(Path(words[words.index("-o") + 1]), Path(words[-1]))

    monkeypatch.setattr(config_drive, "run", archive)


def pack(half: Path, folder: Path) -> str:
    modes = {half.stat().st_mode & 0o777, folder.stat().st_mode & 0o077}
    assert modes == {0o600, 0}, "nobody else can read it while it is made"
    subprocess.run(["tar", "-cf", half, "-C", folder, "."], check=True)
    return ""


def content(path: Path, name: str) -> bytes:
    return subprocess.run(["tar", "-xOf", path, f"./{name}"], check=True, capture_output=True).stdout


def names(path: Path) -> set[str]:
    listed = subprocess.run(["tar", "-tf", path], check=True, capture_output=True).stdout.decode().split()
    return {name.removeprefix("./") for name in listed if not name.endswith("/")}


def test_it_has_every_file_and_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes, path = Flushes(tmp_path, monkeypatch), tmp_path / CONFIG_DRIVE
    tree = {"a": b"1", "openstack/latest/b": b"2", "openstack/latest/c": b"3", "openstack/d": b""}
    asyncio.run(write_iso(path, tree))
    assert names(path) == {*tree} and all(content(path, name) == data for name, data in tree.items())
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [CONFIG_DRIVE]
    assert flushes.lost() == [] and flushes.names == [CONFIG_DRIVE]


def test_what_one_who_was_killed_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".config-left").mkdir(0o755)
    (tmp_path / ".config-left" / "secret").write_bytes(b"hunter2")
    (tmp_path / "config.half").write_bytes(b"half")
    (tmp_path / "config.half").chmod(0o644)
    asyncio.run(write_iso(tmp_path / CONFIG_DRIVE, {"a": b"1"}))
    assert [one.name for one in tmp_path.iterdir()] == [CONFIG_DRIVE]


def test_one_that_cannot_be_made_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / CONFIG_DRIVE
    asyncio.run(write_iso(path, {"a": b"1"}))

    async def full(*_: str) -> str:
        raise Failed("program_failed", "No space left on device")

    monkeypatch.setattr(config_drive, "run", full)
    with pytest.raises(Failed, match="No space left"):
        asyncio.run(write_iso(path, {"a": b"2"}))
    assert content(path, "a") == b"1"
    assert not [*tmp_path.glob(".config-*")], "the files of the new one are secrets, too"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x"])
def test_a_name_does_not_lead_out_of_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(Failed, match="is not a path inside of it") as why:
        asyncio.run(write_iso(tmp_path / CONFIG_DRIVE, {name: b"1"}))
    assert why.value.final and not (tmp_path / CONFIG_DRIVE).exists()


def test_one_that_is_there_stays_where_no_secrets_come(tmp_path: Path) -> None:
    """An order that makes no copy brings none: those of the one before would be lost."""
    path, guest = tmp_path / CONFIG_DRIVE, spec("s1")
    for secrets, kept in (
        (None, b""),
        (GuestSecrets(files=[GuestFile("/a", "b25l")]), b"one"),
        (None, b"one"),
        (GuestSecrets(files=[GuestFile("/a", "dHdv")]), b"two"),
    ):
        asyncio.run(ensure_config_drive(tmp_path, guest, secrets, "example.org"))
        found = content(path, "openstack/content/0000") if "openstack/content/0000" in names(path) else b""
        assert found == kept
    told = content(path, "openstack/latest/meta_data.json")
    assert b'"hostname":"s1.example.org"' in told and b"random_seed" in told
