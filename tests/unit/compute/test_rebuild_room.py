"""Where a rebuild makes the new disks, on a file system of a size that each test chooses."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.libvirt import rebuild_room
from kilonova.compute.drivers.libvirt.disks import GIB, Disks
from kilonova.compute.drivers.libvirt.fetching import HEAD, MARK, FetchedImages
from kilonova.compute.drivers.libvirt.images import FRESH_SECONDS, Bases
from kilonova.compute.drivers.libvirt.rebuild_room import Need, RebuildRoom, Space, choose_room
from kilonova.compute.drivers.libvirt.reservations import RESERVED
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestVolume
from kilonova.domain.image_bytes import ImageContent, ImageOrder
from tests.unit.compute import test_libvirt_disks
from tests.unit.compute.test_libvirt_disks import guest, on

root = test_libvirt_disks.root  # the fixture
MIB = 1024**2
OLD = 4 * MIB  # bytes that the old root disk takes


@pytest.fixture
def free(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are free; the old copy is there."""
    found = [0]
    monkeypatch.setattr(rebuild_room, "free_bytes", lambda folder: found[0])
    asyncio.run(on(root).make(guest(1)))
    disk = root / "root/host1/s/1/disk.qcow2"
    disk.write_bytes(disk.read_bytes().ljust(OLD, b"\1"))
    return found


def find(root: Path, disks: Disks | None = None, *, keeps: bool = False, **changes: Any) -> str:
    disks = disks or on(root)
    room = RebuildRoom(root / "root", disks, disks._bases)
    return asyncio.run(room.find(guest(2, **changes), 1, changes.pop("order", None), keeps_ephemeral=keeps))


LOCAL = 4 * GIB + 8 * MIB  # ephemeral and swap disks of the guest


@pytest.mark.parametrize(
    ("free", "freed", "room"),
    [
        (100, 0, BESIDE),  # all that it may ever write fits
        (99, 0, BESIDE),  # the host promises more than it has, and removing the old disk does not help
        (99, 1, INSTEAD),
        (40, 60, INSTEAD),
        (30, 69, BESIDE),
        (29, 70, ""),  # the image does not fit; and the new disk would not be sure of its room
        (29, 71, INSTEAD),
        (0, 0, ""),
    ],
)
def test_the_old_disk_goes_first_only_where_the_new_one_is_then_sure_to_fit(free: int, freed: int, room: str) -> None:
    assert choose_room(Need(least=30, most=100), Space(free, freed, Need(0, 0))) == room


def test_bytes_that_others_were_promised_are_not_free() -> None:
    need, old = Need(least=30, most=100), 10
    assert choose_room(need, Space(150, old, Need(0, 50))) == BESIDE
    assert choose_room(need, Space(150, old, Need(0, 51))) == INSTEAD
    assert choose_room(need, Space(150, old, Need(120, 120))) == BESIDE, "the host promises more than it has"
    assert choose_room(need, Space(150, old, Need(121, 121))) == "", "there is no room for both images"


def test_disks_are_counted_as_large_as_they_may_become(
    root: Path, free: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    free[0] = 2 * GIB + LOCAL
    assert find(root) == BESIDE
    free[0] -= 1
    assert find(root) == INSTEAD
    kept, removed = (record.getMessage() for record in caplog.records)
    assert "old_disk=keep it until the new one runs" in kept and f"needed={2 * GIB + LOCAL}" in kept
    assert "old_disk=remove it first" in removed and f"free={2 * GIB + LOCAL - 1}" in removed
    free[0] -= 2 * OLD  # the old disk does not make up for it; the image is in the cache, so nothing is written at once
    assert find(root) == BESIDE


def test_ephemeral_disks_that_are_kept_are_neither_needed_again_nor_freed(root: Path, free: list[int]) -> None:
    ephemeral = root / "root/host1/s/1/ephemeral0.qcow2"
    ephemeral.write_bytes(b"\1" * OLD)
    free[0] = 2 * GIB + 8 * MIB
    assert find(root, keeps=True) == BESIDE
    free[0] -= OLD + MIB
    assert find(root, keeps=True) == BESIDE, "the ephemeral disk stays, so the old disks free too little"
    free[0] += LOCAL - 8 * MIB
    assert find(root, keeps=False) == INSTEAD


def test_files_that_another_copy_has_too_free_nothing(root: Path, free: list[int]) -> None:
    free[0] = 2 * GIB + LOCAL - MIB
    assert find(root) == INSTEAD
    os.link(root / "root/host1/s/1/disk.qcow2", root / "root/another")
    assert find(root) == BESIDE


def test_an_image_that_fits_in_neither_way_is_refused_and_nothing_is_touched(root: Path, free: list[int]) -> None:
    (root / "images" / "new").write_bytes(b"x" * MIB)
    before = sorted(path for path in root.rglob("*"))
    with pytest.raises(Failed) as why:
        find(root, image="new")
    assert (why.value.code, why.value.elsewhere) == ("host_storage", True)
    assert f"{MIB} bytes are needed at once, 0 are free" in why.value.message
    assert why.value.message.endswith(" are in its old disks; free some, or migrate the server")
    assert sorted(path for path in root.rglob("*")) == before


def test_the_image_is_there_before_the_old_disk_may_go(root: Path, free: list[int]) -> None:
    """Where it fits beside the old disk it is in the cache when the answer is given."""
    (root / "images" / "new").write_bytes(b"x" * MIB)
    free[0] = 2 * GIB + LOCAL
    assert find(root, image="new") == INSTEAD
    assert (root / "root/_base/new.raw").is_file()


@pytest.mark.parametrize(("lacking", "is_there"), [(0, True), (1, False)])
def test_an_image_is_fetched_before_only_if_it_surely_fits(
    root: Path, free: list[int], monkeypatch: pytest.MonkeyPatch, lacking: int, is_there: bool
) -> None:
    (root / "images" / "new").write_bytes(b"x" * MIB)
    monkeypatch.setattr(rebuild_room, "choose_room", lambda need, space: INSTEAD)
    free[0] = asyncio.run(on(root)._bases.missing("new", "", 2 * GIB, None)).most - lacking
    assert find(root, image="new") == INSTEAD
    assert (root / "root/_base/new.raw").is_file() is is_there


@pytest.mark.parametrize(("image", "code"), [("missing", "no_image"), ("large", "image_too_large")])
def test_an_image_that_cannot_be_used_is_refused_before(root: Path, free: list[int], image: str, code: str) -> None:
    with (root / "images" / "large").open("wb") as file:
        file.truncate(3 * GIB)
    free[0] = GIB
    with pytest.raises(Failed) as why:
        find(root, image=image)
    assert why.value.code == code


def test_unused_bases_go_before_any_disk(root: Path, free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    unused, fresh = root / "root/_base/unused.raw", root / "root/_base/fresh.raw"
    for path in (unused, fresh):
        path.write_bytes(b"x")
    os.utime(unused, (0, time.time() - FRESH_SECONDS - 1))
    need = 2 * GIB + LOCAL
    monkeypatch.setattr(rebuild_room, "free_bytes", lambda folder: need - 1 if unused.exists() else need)
    assert find(root) == BESIDE
    assert not unused.exists() and fresh.exists() and (root / "root/_base/tiny.raw").exists()


def test_a_server_that_boots_from_a_volume_needs_no_room(root: Path, free: list[int]) -> None:
    volume = GuestVolume(attachment="a", volume="v", is_root=True)
    assert find(root, volumes=[volume], image="missing") == BESIDE, "and no image"
    assert list((root / "root").rglob(RESERVED)) == []


def test_a_disk_of_no_size_is_as_large_as_its_image(root: Path, free: list[int]) -> None:
    with (root / "images" / "large").open("wb") as file:
        file.truncate(3 * GIB)
    free[0] = 3 * GIB + 3 * GIB + LOCAL  # the base, and what a guest may write to the disk over it
    assert find(root, image="large", disk_gb=0) == BESIDE
    free[0] -= 1
    assert find(root, image="large", disk_gb=0) == INSTEAD


def test_unused_bases_stay_while_there_is_room(root: Path, free: list[int]) -> None:
    unused = root / "root/_base/unused.raw"
    unused.write_bytes(b"x")
    os.utime(unused, (0, time.time() - FRESH_SECONDS - 1))
    free[0] = 2 * GIB + LOCAL
    assert find(root) == BESIDE and unused.exists()
    free[0] -= 1
    assert find(root) == INSTEAD and not unused.exists()


class Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = content

    async def fetch(self, order: ImageOrder, offset: int) -> Any:
        yield self.content[offset:]


def fetched(root: Path, content: bytes, disk_format: str) -> tuple[Disks, ImageOrder]:
    size = len(content)
    about = ImageContent(size=size, algorithm="sha256", checksum="0", disk_format=disk_format)
    source = FetchedImages(root / "root", "host1", Bytes(content), patience=0.0)
    return Disks(root / "root", "host1", Bases(root / "root", source, "host1")), ImageOrder(image="new", content=about)


def test_a_qcow2_is_measured_by_its_first_bytes(root: Path) -> None:
    head = MARK + b"\0\0\0\3" + b"\0" * 16 + GIB.to_bytes(8, "big")
    disks, order = fetched(root, head.ljust(1000, b"x"), "qcow2")
    assert len(head) == HEAD
    missing = asyncio.run(disks._bases.missing("new", "", 2 * GIB, order))
    assert missing == (1000 + 1000, 1000 + GIB, GIB), "the file that is fetched, and the base that is made of it"


def test_bytes_that_are_no_qcow2_are_refused_unfetched(root: Path) -> None:
    disks, order = fetched(root, b"x" * 1000, "qcow2")
    with pytest.raises(Failed) as why:
        asyncio.run(disks._bases.missing("new", "", 2 * GIB, order))
    assert why.value.code == "image_unreadable"
    assert list((root / "root").rglob("*.part")) == []


def test_an_image_that_is_gone_is_refused(root: Path) -> None:
    disks, _ = fetched(root, b"", "raw")
    with pytest.raises(Failed) as why:
        asyncio.run(disks._bases.missing("new", "", 2 * GIB, ImageOrder(image="new")))
    assert why.value.code == "image_gone"
