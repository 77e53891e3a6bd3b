"""Files of a libvirt guest's disks, with programs that only write down sizes: tests/guests has the real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kilonova.compute.drivers.libvirt import disks, images
from kilonova.compute.drivers.libvirt import moves as moving
from kilonova.compute.drivers.libvirt.disks import BASE, GIB, LAYER, Disks, storage_id
from kilonova.compute.drivers.libvirt.domain import domain_xml
from kilonova.compute.drivers.libvirt.images import Bases, FolderImages
from kilonova.compute.drivers.libvirt.moves import Moves
from kilonova.compute.transfer.receiver import INCOMING
from kilonova.compute.transfer.sender import DiskSender
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.image_bytes import DiskRoute
from tests.support.flushing import Flushes

SIZES = {"disk_gb": 2, "ephemeral_gb": [3, 1], "swap_mb": 8}


def guest(copy: int = 1, **changes: Any) -> GuestSpec:
    values: dict[str, Any] = {"name": "a", "vcpus": 1, "memory_mb": 32, "image": "tiny", "image_format": "raw"}
    return GuestSpec(server="s", copy=copy, **{**values, **SIZES, **changes})


async def program(*words: str, seconds: float = 0.0) -> str:
    return act(*words)


def act(*words: str) -> str:
    """qemu-img and mkswap: a disk is a file with its size and a note."""
    match [word for word in words if not word.startswith("-") and word not in ("raw", "qcow2")]:
        case ["qemu-img", "convert", source, target]:
            is_raw = words[words.index("-f") + 1] == "raw"
            content = (
                {"size": Path(source).stat().st_size, "note": ""} if is_raw else json.loads(Path(source).read_text())
            )
            Path(target).write_text(json.dumps(content))
        case ["qemu-img", "create", layer, target] if layer.endswith(LAYER):
            Path(target).write_text(
                json.dumps({**json.loads(Path(target).with_name(layer).read_text()), "over": layer})
            )
        case ["qemu-img", "commit", target]:
            disk = json.loads(Path(target).read_text())
            over = Path(target).with_name(disk.pop("over"))
            over.write_text(json.dumps({**json.loads(over.read_text()), **disk, "note": disk["note"] + "!"}))
        case ["qemu-img", "create", *_, target, size]:
            Path(target).write_text(json.dumps({"size": int(size), "note": ""}))
        case ["qemu-img", "resize", target, size]:
            Path(target).write_text(json.dumps({**json.loads(Path(target).read_text()), "size": int(size)}))
        case ["qemu-img", "info", target]:
            disk = json.loads(Path(target).read_text())
            return json.dumps({"virtual-size": disk["size"], "backing-filename": disk.get("over", BASE)})
        case ["mkswap", _]:
            pass
        case other:
            raise AssertionError(other)
    return ""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Whatever a test does there, no disk that has its name is lost by a power cut."""
    flushes = Flushes(tmp_path, monkeypatch)
    for module in (disks, images, moving):
        monkeypatch.setattr(module, "run", program)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "tiny").write_bytes(b"x" * 512)
    (tmp_path / "root" / "host1").mkdir(parents=True)
    yield tmp_path
    assert flushes.lost() == []


def on(root: Path, host: str = "host1") -> Disks:
    return Disks(root / "root", host, Bases(root / "root", FolderImages(root / "images")))


def moves(root: Path, host: str = "host1") -> Moves:
    disks = on(root, host)
    return Moves(host, disks, disks._bases, DiskSender(), "")


ROUTE = DiskRoute(url="", token="token")


def sizes(root: Path, copy: int = 1, host: str = "host1") -> dict[str, Any]:
    found = {}
    for path in sorted((root / "root" / host / "s" / str(copy)).iterdir()):
        if path.name in (BASE, INCOMING) or path.suffix == LAYER:
            continue
        found[path.name] = path.stat().st_size if path.suffix == ".raw" else json.loads(path.read_text())["size"]
    return found


WHOLE = {"disk.qcow2": 2 * GIB, "ephemeral0.qcow2": 3 * GIB, "ephemeral1.qcow2": GIB, "swap.raw": 8 * 1024**2}


def note(root: Path, name: str, copy: int = 1, host: str = "host1") -> str:
    return str(json.loads((root / "root" / host / "s" / str(copy) / name).read_text())["note"])


def write(root: Path, name: str, text: str) -> None:
    path = root / "root" / "host1" / "s" / "1" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": text}))


def test_all_disks_are_made_and_one_that_is_there_is_kept(root: Path) -> None:
    asyncio.run(on(root).make(guest()))
    assert sizes(root) == WHOLE
    write(root, "ephemeral0.qcow2", "kept")
    (root / "root/host1/s/1/disk.qcow2").unlink()  # it died before the root disk was whole
    asyncio.run(on(root).make(guest()))
    assert sizes(root) == WHOLE and note(root, "ephemeral0.qcow2") == "kept"


ROOT = GuestVolume(attachment="a", volume="v", is_root=True)


def test_every_disk_is_for_its_owner_alone_and_lies_over_the_base_of_its_image(root: Path) -> None:
    asyncio.run(on(root).make(guest()))
    place = root / "root/host1/s/1"
    assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == dict.fromkeys([*WHOLE, BASE], 0o600)
    assert (place / BASE).samefile(root / "root/_base/tiny.raw")


def test_the_root_disk_of_a_guest_that_boots_from_a_volume_only_says_that_it_is_whole(root: Path) -> None:
    async def story() -> None:
        whole = guest(volumes=[ROOT], image="missing", ephemeral_gb=[1], swap_mb=0)
        await on(root).make(whole)
        assert sizes(root) == {"disk.qcow2": 1024**2, "ephemeral0.qcow2": GIB}
        assert not (root / "root/host1/s/1" / BASE).exists()
        await on(root).fit(whole)
        assert await on(root).fits(whole) and sizes(root)["disk.qcow2"] == 1024**2

    asyncio.run(story())


def test_a_disk_of_no_size_is_as_large_as_its_image(root: Path) -> None:
    async def story() -> None:
        whole = guest(disk_gb=0, ephemeral_gb=[], swap_mb=0)
        await on(root).make(whole)
        size = (root / "root/_base/tiny.raw").stat().st_size
        assert sizes(root) == {"disk.qcow2": size}
        await on(root).fit(whole)
        assert await on(root).fits(whole) and sizes(root) == {"disk.qcow2": size}

    asyncio.run(story())


def test_an_image_that_is_larger_than_the_disk_is_refused(root: Path) -> None:
    with (root / "images" / "large").open("wb") as file:
        file.truncate(2 * GIB + 512)
    with pytest.raises(Failed, match="use a larger flavor"):
        asyncio.run(on(root).make(guest(image="large")))
    assert not on(root).is_whole("s", 1)


@pytest.mark.parametrize(
    "wanted",
    [{"disk_gb": 3}, {"ephemeral_gb": [3, 2]}, {"ephemeral_gb": [3, 1, 1]}, {"swap_mb": 9}, {"swap_mb": 0}],
)
def test_disks_fit_only_when_all_have_their_sizes(root: Path, wanted: dict[str, Any]) -> None:
    async def story() -> None:
        await on(root).make(guest())
        swap = (root / "root/host1/s/1/swap.raw").stat().st_ino
        await on(root).fit(guest())
        assert await on(root).fits(guest())
        assert (root / "root/host1/s/1/swap.raw").stat().st_ino == swap, "it is not made again"
        assert not await on(root).fits(guest(**wanted))
        await on(root).fit(guest(**wanted))
        assert await on(root).fits(guest(**wanted))

    asyncio.run(story())


def test_ephemeral_disks_are_sent_and_swap_is_made_again(root: Path) -> None:
    async def story() -> None:
        there = on(root, "host2")
        await on(root).make(guest())
        write(root, "ephemeral1.qcow2", "kept")
        await moves(root, "host2").expect(guest(2), "token", None)
        for _ in range(2):
            await moves(root).send("s", 1, "host2", 2, ROUTE)
        assert "swap.raw" not in sizes(root, 2, "host2")
        assert not await there.fits(guest(2))
        for _ in range(2):
            await there.fit(guest(2))
            assert await there.fits(guest(2))
        assert sizes(root, 2, "host2") == WHOLE and note(root, "ephemeral1.qcow2", 2, "host2") == "kept"

    asyncio.run(story())


def test_disks_grow_and_never_shrink(root: Path) -> None:
    async def story() -> None:
        await on(root).make(guest())
        larger = guest(disk_gb=4, ephemeral_gb=[3, 2, 1], swap_mb=16)
        await on(root).fit(larger)
        grown = {**WHOLE, "disk.qcow2": 4 * GIB, "ephemeral1.qcow2": 2 * GIB, "ephemeral2.qcow2": GIB}
        assert sizes(root) == {**grown, "swap.raw": 16 * 1024**2}
        for smaller in (guest(disk_gb=3), guest(disk_gb=4, ephemeral_gb=[3])):
            with pytest.raises(Failed, match="cannot shrink"):
                await on(root).fit(smaller)
        await on(root).fit(guest(disk_gb=4, ephemeral_gb=[3, 2, 1], swap_mb=0))
        assert sizes(root) == {name: size for name, size in grown.items() if name != "swap.raw"}

    asyncio.run(story())


def test_a_copy_takes_all_disks_over_or_the_ephemeral_ones(root: Path) -> None:
    async def story() -> None:
        await on(root).make(guest())
        write(root, "ephemeral0.qcow2", "kept")
        assert on(root).adopt("s", 2, 1) and sizes(root, 2) == WHOLE
        await on(root).make(guest(3))
        for _ in range(2):
            await moves(root).keep_ephemerals(guest(3), 1)
        assert (root / "root/host1/s/3/ephemeral0.1.layer").samefile(root / "root/host1/s/1/ephemeral0.qcow2")
        assert sizes(root, 3) == WHOLE and note(root, "ephemeral0.qcow2", 3) == "kept"

    asyncio.run(story())


def test_on_shared_storage_nothing_is_copied(root: Path) -> None:
    """The old copy stays as it was; once it is gone, the next move puts the layer and the disk together."""

    async def story() -> None:
        await on(root).make(guest())
        await moves(root, "host2").expect(guest(2), "token", None)
        await moves(root).send("s", 1, "host2", 2, ROUTE)
        layer = root / "root/host2/s/2/disk.1.layer"
        assert layer.samefile(root / "root/host1/s/1/disk.qcow2")
        await on(root, "host2").fit(guest(2, disk_gb=4))
        assert sizes(root, 2, "host2")["disk.qcow2"] == 4 * GIB and sizes(root)["disk.qcow2"] == 2 * GIB
        on(root).remove("s", 1)
        await moves(root).expect(guest(3), "token", None)
        await moves(root, "host2").send("s", 2, "host1", 3, ROUTE)
        assert sorted(path.name for path in (root / "root/host1/s/3").glob(f"disk*{LAYER}")) == ["disk.2.layer"]
        assert note(root, "disk.qcow2", 3) == "!", "committed once"
        assert on(root, "host2").adopt("s", 4, 3), "evacuated, with what the disk is laid over"
        assert (root / "root/host2/s/4/disk.2.layer").samefile(root / "root/host1/s/3/disk.2.layer")

    asyncio.run(story())


def test_private_directories_of_the_same_name_are_not_shared(root: Path) -> None:
    """A directory with the destination's name proves nothing, nor does another move's token."""

    async def story() -> None:
        await on(root).make(guest())
        (root / "root/host2/s/2").mkdir(parents=True)
        with pytest.raises(Failed, match="host1 cannot send a disk to host2: they share no storage"):
            await moves(root).send("s", 1, "host2", 2, ROUTE)
        await moves(root, "host2").expect(guest(2), "another", None)
        for route in (ROUTE, None, DiskRoute(url="", token="")):
            with pytest.raises(Failed, match="they share no storage"):
                await moves(root).send("s", 1, "host2", 2, route)

    asyncio.run(story())


def test_hosts_that_see_the_same_directory_say_the_same(tmp_path: Path) -> None:
    first, second = storage_id(tmp_path / "one"), storage_id(tmp_path / "two")
    assert first != second and len(first) == 32
    assert storage_id(tmp_path / "one") == first
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["_storage"]


def test_the_definition_names_every_disk(root: Path) -> None:
    xml = ElementTree.fromstring(domain_xml(guest(), root, "qemu", "me"))
    found = [
        (disk.find("target").get("dev"), Path(disk.find("source").get("file")).name, disk.find("driver").get("type"))  # type: ignore[union-attr, arg-type]
        for disk in xml.findall("./devices/disk")
    ]
    assert found == [
        ("vda", "disk.qcow2", "qcow2"),
        ("vdb", "ephemeral0.qcow2", "qcow2"),
        ("vdc", "ephemeral1.qcow2", "qcow2"),
        ("vdd", "swap.raw", "raw"),
    ]
