"""Disks of a copy that become those of another one: what is laid over what, what is sent, and in which order."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.libvirt import moves as module
from kilonova.compute.drivers.libvirt.disks import BASE, GIB, Disks
from kilonova.compute.drivers.libvirt.images import MOST_DISK, Bases, FolderImages
from kilonova.compute.drivers.libvirt.moves import Moves
from kilonova.compute.transfer.receiver import INCOMING, Expected, hashed, read_expected
from kilonova.compute.transfer.sender import SentFile
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestVolume
from kilonova.domain.image_bytes import DiskRoute
from tests.unit.compute import test_libvirt_disks
from tests.unit.compute.test_libvirt_disks import act, guest

root = test_libvirt_disks.root  # the fixture
ROUTE, FAR = DiskRoute(url="", token="token"), DiskRoute(url="http://host2", token="token")
ROOT = GuestVolume(attachment="a", volume="v", is_root=True)


class Sender:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[DiskRoute, str, int, list[SentFile]]] = []

    async def send(self, route: DiskRoute, server: str, copy: int, files: Sequence[SentFile]) -> int:
        self.sent.append((route, server, copy, [*files]))
        return 1


class Host:
    """A host with its disks below one directory."""

    def __init__(self, folder: Path, host: str = "host1", url: str = "http://here") -> None:
        self.sender = Sender()
        bases = Bases(folder, FolderImages(folder.parent / "images"))
        self.disks = Disks(folder, host, bases)
        self.moves = Moves(host, self.disks, bases, self.sender, url)  # type: ignore[arg-type]

    def names(self, copy: int) -> set[str]:
        return {path.name for path in self.disks.directory("s", copy).iterdir()}


@pytest.fixture
def commands(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to disks by a move."""
    done: list[str] = []

    async def program(*words: str, seconds: float = 0.0) -> str:
        done.append(words[1])
        return act(*words)

    monkeypatch.setattr(module, "run", program)
    return done


async def made(root: Path, **changes: Any) -> Host:
    host = Host(root / "root")
    await host.disks.make(guest(1, **changes))
    return host


# -- the destination -------------------------------------------------------------------------------------------------


def test_a_move_without_disks_expects_none(root: Path) -> None:
    host = Host(root / "root")
    assert asyncio.run(host.moves.expect(guest(2), "", None)) == ""
    assert host.names(2) == set(), "only its directory is there"


@pytest.mark.parametrize(
    ("changes", "whole", "image"),
    [
        ({}, False, "tiny"),
        ({}, True, ""),
        ({"volumes": [ROOT]}, False, ""),
        ({"image": ""}, False, ""),
        ({"image": "missing"}, False, ""),
    ],
    ids=["", "it is here already", "no local root disk", "no image", "an image that is gone"],
)
def test_the_base_need_not_be_sent_where_its_image_is(
    root: Path, changes: dict[str, Any], whole: bool, image: str
) -> None:
    async def story() -> None:
        host = Host(root / "root")
        if whole:
            await host.disks.make(guest(2))
            (host.disks.directory("s", 2) / BASE).unlink()
        assert await host.moves.expect(guest(2, **changes), "token", None) == "http://here"
        expected = read_expected(host.disks.directory("s", 2))
        assert expected is not None and expected.admits("token") and expected.image == image
        assert (BASE in host.names(2)) is bool(image)
        if image:
            assert (host.disks.directory("s", 2) / BASE).samefile(root / "root/_base/tiny.raw")

    asyncio.run(story())


def test_disks_may_be_somewhat_larger_than_what_they_hold(root: Path) -> None:
    host = Host(root / "root")
    asyncio.run(host.moves.expect(guest(2, disk_gb=0, ephemeral_gb=[10, 1]), "token", None))
    expected = read_expected(host.disks.directory("s", 2))
    assert expected is not None
    assert {*expected.most} == {"disk", "base", "ephemeral0", "ephemeral1"}
    assert expected.most["disk"] == expected.most["base"] == MOST_DISK, "as large as its image, whatever that is"
    assert 11 * GIB <= expected.most["ephemeral0"] < 12 * GIB
    assert GIB < expected.most["ephemeral1"] < 2 * GIB


def test_once_the_disks_have_arrived_none_is_expected(root: Path) -> None:
    host = Host(root / "root")
    asyncio.run(host.moves.expect(guest(2), "token", None))
    for _ in range(2):
        host.moves.arrived("s", 2)
        assert INCOMING not in host.names(2)


# -- the source ------------------------------------------------------------------------------------------------------


def test_on_the_same_host_nothing_is_asked_and_nothing_copied(root: Path, commands: list[str]) -> None:
    async def story() -> None:
        host = await made(root)
        await host.moves.send("s", 1, "host1", 2, None)
        assert host.names(2) == {
            *("disk.qcow2", "disk.1.layer", "ephemeral0.qcow2", "ephemeral0.1.layer"),
            *("ephemeral1.qcow2", "ephemeral1.1.layer", BASE),
        }
        assert {path.stat().st_mode & 0o777 for path in host.disks.directory("s", 2).iterdir()} == {0o600}
        commands.clear()
        await host.moves.send("s", 1, "host1", 2, None)
        assert commands == [] and host.sender.sent == [], "it is there already"

    asyncio.run(story())


def test_a_disk_without_a_base_is_laid_over_all_the_same(root: Path) -> None:
    async def story() -> None:
        host = await made(root, volumes=[ROOT], ephemeral_gb=[], swap_mb=0)
        await host.moves.send("s", 1, "host1", 2, None)
        assert host.names(2) == {"disk.qcow2", "disk.1.layer"}

    asyncio.run(story())


@pytest.mark.parametrize("route", [None, ROUTE])
def test_hosts_that_share_nothing_and_take_nothing_cannot_move(root: Path, route: DiskRoute | None) -> None:
    async def story() -> None:
        host = await made(root)
        with pytest.raises(Failed, match="host1 cannot send a disk to host2") as why:
            await host.moves.send("s", 1, "host2", 2, route)
        assert (why.value.code, why.value.final) == ("unreachable", True)

    asyncio.run(story())


def test_the_disk_is_sent_last_and_what_it_lies_over_first(root: Path) -> None:
    async def story() -> None:
        host = await made(root)
        place = host.disks.directory("s", 1)
        for name in ("disk.9.layer", "ephemeral0.3.layer"):
            (place / name).touch()
        await host.moves.send("s", 1, "host2", 2, FAR)
        ((route, server, copy, files),) = host.sender.sent
        assert (route, server, copy) == (FAR, "s", 2)
        assert [(one.name, one.image) for one in files] == [
            (BASE, "tiny"),
            ("disk.9.layer", ""),
            ("ephemeral0.3.layer", ""),
            ("ephemeral0.qcow2", ""),
            ("ephemeral1.qcow2", ""),
            ("disk.qcow2", ""),
        ]
        assert all(one.path == place / one.name for one in files)
        assert not (root / "root/host2").exists()

    asyncio.run(story())


def test_a_disk_without_a_base_is_sent_alone(root: Path) -> None:
    async def story() -> None:
        host = await made(root, volumes=[ROOT], ephemeral_gb=[], swap_mb=0)
        await host.moves.send("s", 1, "host2", 2, FAR)
        assert [one.name for one in host.sender.sent[0][3]] == ["disk.qcow2"]

    asyncio.run(story())


@pytest.mark.parametrize("used", [False, True], ids=["its own", "another copy's, too"])
@pytest.mark.parametrize("to_host", ["host1", "host2"])
def test_a_layer_that_no_other_disk_uses_is_merged_before_a_move(
    root: Path, commands: list[str], used: bool, to_host: str
) -> None:
    """Else each move would add one. What another copy lies over stays as it is: that copy may be started again."""

    async def story() -> None:
        host = await made(root, ephemeral_gb=[1], swap_mb=0)
        await host.moves.send("s", 1, "host1", 2, None)
        if not used:
            host.disks.remove("s", 1)
        commands.clear()
        before = {path.name: path.read_bytes() for path in host.disks.directory("s", 2).glob("*.layer")}
        await host.moves.send("s", 2, to_host, 3, FAR)
        assert commands.count("commit") == (0 if used else 2)
        left = host.names(2)
        assert ("disk.1.layer" in left, "ephemeral0.1.layer" in left) == (used, used)
        if used:
            assert {name: (host.disks.directory("s", 2) / name).read_bytes() for name in before} == before
            assert {"disk.qcow2", "ephemeral0.qcow2"} <= host.names(1)

    asyncio.run(story())


@pytest.mark.parametrize("name", ["base.raw", "../1/disk.1.layer", "disk.1.layer.raw"])
def test_only_a_layer_beside_the_disk_is_merged(root: Path, commands: list[str], name: str) -> None:
    async def story() -> None:
        host = await made(root, ephemeral_gb=[], swap_mb=0)
        disk = host.disks.disk("s", 1)
        disk.write_text(json.dumps({"size": GIB, "note": "", "over": name}))
        for path in (disk.with_name("disk.1.layer"), disk.with_name("disk.1.layer.raw")):
            path.write_text(json.dumps({"size": GIB, "note": ""}))
        await host.moves.send("s", 1, "host2", 2, FAR)
        assert "commit" not in commands

    asyncio.run(story())


def test_ephemeral_disks_of_another_flavor_are_not_kept(root: Path) -> None:
    async def story() -> None:
        host = await made(root)
        await host.disks.make(guest(2, ephemeral_gb=[]))
        await host.moves.keep_ephemerals(guest(2, ephemeral_gb=[3]), 1)
        assert {name for name in host.names(2) if name.startswith("ephemeral")} == {
            "ephemeral0.qcow2",
            "ephemeral0.1.layer",
        }

    asyncio.run(story())


def test_kept_ephemeral_disks_have_all_of_their_layers(root: Path) -> None:
    async def story() -> None:
        host = await made(root, ephemeral_gb=[1, 1], swap_mb=0)
        await host.moves.send("s", 1, "host1", 2, None)
        await host.disks.make(guest(3, ephemeral_gb=[], swap_mb=0))
        await host.moves.keep_ephemerals(guest(3, ephemeral_gb=[1]), 2)
        assert {name for name in host.names(3) if name.endswith(".layer")} == {
            "ephemeral0.1.layer",
            "ephemeral0.2.layer",
        }

    asyncio.run(story())


def test_a_directory_that_only_looks_like_the_destinations_is_not_shared(root: Path) -> None:
    async def story() -> None:
        host = await made(root)
        there = Host(root / "root", "host2").disks.ready_directory("s", 2)
        module.write_expected(there, Expected(hashed("another"), {}))
        await host.moves.send("s", 1, "host2", 2, FAR)
        assert len(host.sender.sent) == 1 and os.listdir(there) == [INCOMING]
        module.write_expected(there, Expected(hashed("token"), {}))
        await host.moves.send("s", 1, "host2", 2, FAR)
        assert len(host.sender.sent) == 1 and (there / "disk.qcow2").exists()

    asyncio.run(story())


def test_a_move_that_was_interrupted_keeps_what_was_done(root: Path) -> None:
    async def story() -> None:
        host = await made(root)
        await host.moves.send("s", 1, "host1", 2, None)
        place = host.disks.directory("s", 2)
        (place / "disk.qcow2").unlink()  # the last one
        (place / "ephemeral0.qcow2").write_text(json.dumps({"size": 3 * GIB, "note": "kept"}))
        await host.moves.send("s", 1, "host1", 2, None)
        assert json.loads((place / "ephemeral0.qcow2").read_text())["note"] == "kept"
        assert (place / "disk.qcow2").exists()

    asyncio.run(story())
