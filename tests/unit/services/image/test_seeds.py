"""The images of a new cloud, and of the next starts; and what other parts are told of an image."""

from __future__ import annotations

import errno
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, Refused
from kilonova.records.query import ListQuery
from kilonova.runtime import SystemClock, Uuids
from kilonova.services.image.files import Draft
from kilonova.services.image.image import Image
from kilonova.services.image.seeds import NAMES
from kilonova.services.image.service import Images
from kilonova.store.reserve import IMAGES, DiskReserve
from tests.support.qcow2 import qcow2
from tests.unit.services.image.cloud import ALICE, BOB, OWNER, Life, life, pieces, run

ALL = ListQuery(limit=100)


async def _seeds(lived: Life) -> dict[str | None, Image]:
    return {image.name: image for image in await lived.images.list_(BOB, ALL)}


def test_a_new_cloud_has_two_public_images(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await lived.images.prepare(owner=OWNER)
            seeds = await _seeds(lived)
            assert set(seeds) == {"cirros-sim", "cirros-sim-alt"} == set(NAMES)
            for image in seeds.values():
                content = await lived.content(image)
                assert (image.status, image.visibility, image.owner) == ("active", "public", OWNER)
                assert (image.container_format, image.disk_format) == ("bare", "raw")
                assert (image.min_disk, image.min_ram) == (1, 64)
                assert image.size == image.virtual_size == len(content) == 4096
                assert not await lived.images._files.is_held(image.id)
                assert image.checksum == hashlib.md5(content).hexdigest()
                assert image.hash_value == hashlib.sha512(content).hexdigest()
            assert len({image.checksum for image in seeds.values()}) == 2

    run(story)


def test_a_second_start_changes_nothing_and_a_deleted_one_stays_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as first:
            await first.images.prepare(owner=OWNER)
            before = await _seeds(first)
        async with life(tmp_path) as second:
            commits = second.store.stats.commits
            await second.images.prepare(owner="another")
            assert second.store.stats.commits == commits and await _seeds(second) == before
            await second.images.delete(ALICE, before["cirros-sim"].id, lambda _: None)
        async with life(tmp_path) as third:
            await third.images.prepare(owner=OWNER)
            assert await _seeds(third) == {"cirros-sim-alt": before["cirros-sim-alt"]}
            assert third.files() == [before["cirros-sim-alt"].file]

    run(story)


@pytest.mark.parametrize("commits", [1, 2])
def test_a_first_start_that_was_cut_off_is_completed(tmp_path: Path, commits: int) -> None:
    class Faults:
        left = commits

        def before_commit(self, store_name: str) -> None:
            self.left -= 1
            if not self.left:
                raise CommitFailed("cut off")

        def after_commit(self, store_name: str) -> None: ...

    async def story() -> None:
        async with life(tmp_path) as first:
            faulty: Any = Faults()
            first.store.faults = faulty
            with pytest.raises(CommitFailed):
                await first.images.prepare(owner=OWNER)
        async with life(tmp_path) as second:
            await second.images.prepare(owner=OWNER)
            seeds = await _seeds(second)
            assert set(seeds) == set(NAMES) and len(second.files()) == 2
            for image in seeds.values():
                assert len(await second.content(image)) == image.size

    run(story)


def test_a_host_without_the_files_gets_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as first:
            await first.images.prepare(owner=OWNER)
            seeds = await _seeds(first)
            for name in first.files():
                (first.folder / name).unlink()
        async with life(tmp_path) as second:
            await second.images.prepare(owner=OWNER)
            assert await _seeds(second) == seeds
            for image in seeds.values():
                assert hashlib.md5(await second.content(image)).hexdigest() == image.checksum

    run(story)


def test_what_others_are_told_of_an_image(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.uploaded(b"x", name="web", visibility="private", properties={"os_distro": "cirros"})
            found = await lived.images.find(ALICE, image.id)
            assert (found.name, found.status, found.properties) == ("web", "active", {"os_distro": "cirros"})
            with pytest.raises(Refused) as why:
                await lived.images.find(BOB, image.id)
            assert (why.value.code, why.value.message) == (
                "image_not_found",
                f"Image {image.id} could not be found.",
            )
            before = lived.store.stats.statements
            await lived.images.find(ALICE, image.id)
            assert lived.store.stats.statements - before == 2
            for _ in range(5):
                await lived.create()
            before = lived.store.stats.statements
            assert len(await lived.images.list_(ALICE, ALL)) == 6
            assert lived.store.stats.statements - before == 2

    run(story)


def test_a_cloud_starts_on_a_full_disk_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            reserve = DiskReserve(100, {IMAGES: tmp_path}, lambda _: 99)
            images = Images(lived.store, SystemClock(), Uuids(), lived.folder, reserve=reserve)
            await images.prepare(owner=OWNER)
            assert len(lived.files()) == len(NAMES)
            with pytest.raises(Refused) as why:
                await images.upload(await lived.create(), pieces(b"bytes"))
            assert why.value.code == "storage_reserve" and len(lived.files()) == len(NAMES)

    run(story)


def test_a_disk_that_fails_leaves_no_half_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk")

    async def story() -> None:
        async with life(tmp_path) as lived:
            with monkeypatch.context() as patch:
                patch.setattr(Draft, "_finish", fail)
                with pytest.raises(Refused):
                    await lived.images.prepare(owner=OWNER)
            assert lived.files() == [] and await _seeds(lived) == {}
            await lived.images.prepare(owner=OWNER)
            assert set(await _seeds(lived)) == set(NAMES)

    run(story)


def test_a_start_clears_up_after_uploads_and_what_was_set_aside_goes_in_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            lived.folder.mkdir()
            (lived.folder / "0b7c1f0e-6f43-4a55-9d5c-3a4f5e6d7c8b.part").write_bytes(b"cut off")
            await lived.images.prepare(owner=OWNER)
            assert len(lived.files()) == len(NAMES)
            old, new = (lived.folder / "lost+found" / day for day in ("2020-01-01", f"{datetime.now(UTC):%Y-%m-%d}"))
            for day in (old, new):
                day.mkdir(parents=True)
            await lived.images.remove_expired()
            assert not old.exists() and new.exists()

    run(story)


def test_the_image_of_real_guests_is_made_once_from_its_file(tmp_path: Path) -> None:
    guest = tmp_path / "debian.qcow2"
    guest.write_bytes(qcow2(size=2**30))

    async def story() -> None:
        for _ in range(2):
            async with life(tmp_path) as lived:
                await lived.images.prepare(owner=OWNER, guest_image=str(guest))
                image = (await _seeds(lived))["debian"]
                assert (
                    set(await _seeds(lived)) == {*NAMES, "debian"} and await lived.content(image) == guest.read_bytes()
                )
                assert (image.disk_format, image.virtual_size, image.size) == ("qcow2", 2**30, guest.stat().st_size)
                assert (image.visibility, image.owner, image.status) == ("public", OWNER, "active")
        async with life(tmp_path) as lived:
            await lived.images.delete(ALICE, image.id, lambda _: None)
            await lived.images.prepare(owner=OWNER, guest_image=str(guest))
            assert set(await _seeds(lived)) == set(NAMES) and len(lived.files()) == len(NAMES)

    run(story)


@pytest.mark.parametrize("name", ["", "missing.qcow2"])
def test_without_its_file_there_is_no_image_of_real_guests(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            await lived.images.prepare(owner=OWNER, guest_image=str(tmp_path / name) if name else "")
            assert set(await _seeds(lived)) == set(NAMES)

    run(story)


def test_the_file_of_an_image_is_there_with_its_bytes_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with life(tmp_path) as lived:
            image = await lived.uploaded(b"bytes")
            found = await lived.images.file(image.id)
            assert (found.disk_format, found.path.read_bytes()) == ("raw", b"bytes")
            with await lived.images.open(image) as file:
                assert file.read() == b"bytes"
            no_format = await lived.create(status="active", file="f", disk_format=None)
            assert (await lived.images.file(no_format.id)).disk_format == ""
            for attributes in ({"status": "saving", "file": "g"}, {"status": "active"}, {"status": "queued"}):
                other = await lived.create(**attributes)
                for act in (lambda one: lived.images.file(one.id), lived.images.open):
                    with pytest.raises(Refused, match=f"Image {other.id} is {other.status}; it has no data") as why:
                        await act(other)
                    assert why.value.code == "image_not_active"
            with pytest.raises(Refused, match="Image nothing could not be found"):
                await lived.images.file("nothing")

    run(story)
