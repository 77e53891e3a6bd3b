"""The images of a new cloud, and of the next starts; and what other parts are told of an image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, Refused
from kilonova.records.query import ListQuery
from kilonova.services.image.image import Image
from kilonova.services.image.seeds import NAMES
from tests.unit.services.image.cloud import ALICE, BOB, OWNER, Life, life, run

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
                assert image.size == image.virtual_size == len(content) <= 16384
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
